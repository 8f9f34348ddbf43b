"""Build a round's batch: samples as tensors, with reference, proximal and behaviour log-probs, and
values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from rlhf_lab.algos.off_policy import is_anchored
from rlhf_lab.models.batching import collate
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.training.round_rows import count_tokens, shuffled, with_reference
from rlhf_lab.training.writers import read_by_writers, token_versions
from rlhf_lab.types.data import Batch, ValueModel, Weights
from rlhf_lab.types.protocols import Algorithm, Correction, Engine
from rlhf_lab.types.samples import Group, lag_in_rounds

# In place of the number of a pass in the random key: the choice of reference groups.
REFERENCE = -2
ALL = -1


@dataclass(frozen=True)
class RoundReader:
    """Reads rounds by the trainer's models, and counts the tokens that this takes.

    weights_of: the weights of a version that is still held. reference_groups: groups per round that
    get reference log-probs where only metrics use them; ALL for every group.
    """

    engine: Engine
    correction: Correction
    ledger: Ledger
    weights_of: Callable[[int], Weights]
    seed: int
    pad_id: int
    response_limit: int
    reference_groups: int

    def read(self, weights: Weights, groups: Sequence[Group], algo: Algorithm) -> Batch:
        """The rows (B) of a round that begins with these weights; T: the longest, in tokens."""
        batch = collate(groups, self.pad_id, self.response_limit)
        batch = self._with_reference(batch, len(groups), weights.version)
        tokens = count_tokens(batch)
        if is_anchored(algo, self.correction):
            self.ledger.count(reread_tokens=tokens)
            batch = replace(batch, proximal_logp_BT=self.engine.logp(batch, weights))
        batch = self._with_writers(batch, groups, weights, algo)
        kind = algo.needs.values
        if kind is not ValueModel.none:
            reader = "reread_tokens" if kind is ValueModel.shared else "value_tokens"
            self.ledger.count(**{reader: tokens})
            batch = replace(batch, value_BT=self.engine.values(batch))
        if algo.needs.ratio_gradients:
            self.ledger.count(gradient_tokens=tokens)
            batch = replace(batch, log_ratio_gradient_B=self.engine.ratio_gradients(batch))
        return batch

    def _with_writers(
        self, batch: Batch, groups: Sequence[Group], weights: Weights, algo: Algorithm
    ) -> Batch:
        """What the trainer's model gives each token at the weights that wrote it, with which
        entropy, or how old the token is, if the correction asks for it; proximal log-probs are read
        already."""
        needs = self.correction.needs
        if needs.lag:
            lag_BT = lag_in_rounds(weights.version, token_versions(groups)) * batch.mask_BT
            batch = replace(batch, lag_BT=lag_BT)
        if needs.entropy:
            read = self.engine.entropy
            entropy_BT, tokens = read_by_writers(read, self.weights_of, groups, batch, {})
            self.ledger.count(reread_tokens=tokens)
            batch = replace(batch, entropy_BT=entropy_BT)
        if needs.writer_logp:
            read, known = self.engine.logp, {}
            if is_anchored(algo, self.correction):
                known = {weights.version: batch.proximal_logp_BT}
            logp_BT, tokens = read_by_writers(read, self.weights_of, groups, batch, known)
            self.ledger.count(reread_tokens=tokens)
            batch = replace(batch, writer_logp_BT=logp_BT)
        return batch

    def _with_reference(self, batch: Batch, num_groups: int, round_: int) -> Batch:
        """Reference log-probs of all rows, or of `reference_groups` groups if only metrics use
        them. Offline rows, whose own log-probs are unknown, always get them."""
        is_offline = bool(batch.behavior_logp_BT.isnan().any())
        if self.reference_groups == ALL or is_offline or self.reference_groups >= num_groups:
            self.ledger.count(reference_tokens=count_tokens(batch))
            return with_reference(batch, self.engine.reference_logp(batch))
        chosen_C = shuffled(num_groups, self.seed, round_, REFERENCE)[: self.reference_groups]
        has_reference_B = torch.isin(batch.group_B, chosen_C)
        chosen = batch.rows(has_reference_B)
        self.ledger.count(reference_tokens=count_tokens(chosen))
        reference_BT = batch.behavior_logp_BT.clone()
        reference_BT[has_reference_B] = self.engine.reference_logp(chosen)
        return replace(with_reference(batch, reference_BT), has_reference_B=has_reference_B)
