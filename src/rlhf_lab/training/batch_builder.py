"""Build a round's batch: which groups, in which order, as tensors with reference, proximal and
behaviour log-probs, and values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlhf_lab.algos.off_policy import is_anchored
from rlhf_lab.models.batching import collate, pad_right
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.types.data import Batch, ValueModel, Weights
from rlhf_lab.types.protocols import Algorithm, Correction, Engine
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Group, lag_in_rounds


def shuffled(count: int, seed: int, round_: int, pass_: int) -> Tensor:
    """A random order of a round's groups, keyed by seed, round and pass."""
    key = stable_hash(seed, "minibatches", round_, pass_)
    return torch.randperm(count, generator=torch.Generator().manual_seed(key & (2**63 - 1)))


def informative_first(groups: Sequence[Group], count: int) -> list[Group]:
    """`count` groups in their order: those whose rewards differ first, then tied ones."""
    is_tied = [min(group.rewards) == max(group.rewards) for group in groups]
    chosen = sorted(range(len(groups)), key=lambda place: is_tied[place])[:count]
    return [groups[place] for place in sorted(chosen)]


def with_reference(batch: Batch, reference_BT: Tensor) -> Batch:
    """The batch with reference log-probs. Where the behaviour's are unknown (NaN, offline samples),
    the reference's stand in for them."""
    behavior_BT = batch.behavior_logp_BT
    behavior_BT = torch.where(behavior_BT.isnan(), reference_BT, behavior_BT)
    return replace(
        batch,
        reference_logp_BT=reference_BT,
        behavior_logp_BT=behavior_BT,
        proximal_logp_BT=behavior_BT,
        writer_logp_BT=behavior_BT,
    )


def count_tokens(batch: Batch) -> int:
    """Tokens of the rows that models read, without padding: prompts, responses, and what an
    environment wrote between their tokens."""
    return int(batch.prompt_mask_BS.sum() + batch.read_length_B.sum())


def token_versions(groups: Sequence[Group]) -> Tensor:
    """The version that wrote each token, BT."""
    samples = [sample for group in groups for sample in group.samples]
    return pad_right([s.versions or [s.version] * len(s.tokens) for s in samples], torch.long)


def under_generating_versions(
    read: Callable[[Batch, Weights], Tensor],
    weights_of: Callable[[int], Weights],
    groups: Sequence[Group],
    batch: Batch,
    known: Mapping[int, Tensor],
) -> tuple[Tensor, int]:
    """What is read of each token under the version that wrote it, BT, and the tokens read for it.

    read(batch, weights): a number of each token, such as its log-prob. batch: of these groups.
    known: numbers of all rows, by versions that were read already. Of the others, each reads the
    rows that it wrote tokens of.
    """
    version_BT = token_versions(groups)
    found_BT = torch.zeros_like(batch.mask_BT)
    tokens = 0
    for version in sorted(set(version_BT[batch.mask_BT > 0].tolist())):
        wrote_BT = (version_BT == version) & (batch.mask_BT > 0)
        if version in known:
            found_BT = torch.where(wrote_BT, known[version], found_BT)
            continue
        wrote_B = wrote_BT.any(dim=1)
        part = batch.rows(wrote_B)
        tokens += count_tokens(part)
        read_RT = read(part, weights_of(version))
        found_BT[wrote_B] = torch.where(wrote_BT[wrote_B], read_RT, found_BT[wrote_B])
    return found_BT, tokens


# In place of the number of a pass in the random key: the choice of reference groups.
REFERENCE_GROUPS = -2
ALL = -1


@dataclass(frozen=True)
class BatchBuilder:
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

    def build(self, weights: Weights, groups: Sequence[Group], algo: Algorithm) -> Batch:
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
            entropy_BT, tokens = under_generating_versions(read, self.weights_of, groups, batch, {})
            self.ledger.count(reread_tokens=tokens)
            batch = replace(batch, entropy_BT=entropy_BT)
        if needs.writer_logp:
            read, known = self.engine.logp, {}
            if is_anchored(algo, self.correction):
                known = {weights.version: batch.proximal_logp_BT}
            logp_BT, tokens = under_generating_versions(read, self.weights_of, groups, batch, known)
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
        chosen_C = shuffled(num_groups, self.seed, round_, REFERENCE_GROUPS)[
            : self.reference_groups
        ]
        has_reference_B = torch.isin(batch.group_B, chosen_C)
        chosen = batch.rows(has_reference_B)
        self.ledger.count(reference_tokens=count_tokens(chosen))
        reference_BT = batch.behavior_logp_BT.clone()
        reference_BT[has_reference_B] = self.engine.reference_logp(chosen)
        return replace(with_reference(batch, reference_BT), has_reference_B=has_reference_B)
