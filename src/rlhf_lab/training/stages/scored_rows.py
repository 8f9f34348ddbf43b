"""Rows of tokens that a reward model scores, as batches of an engine, and its pairwise loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.batching import no_text, pad_right, token_weights
from rlhf_lab.models.forward import TokenRows, positions
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.training.stages.strength import Row, pair_loss
from rlhf_lab.training.stages.supervised import SupervisedLoss
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput, Reduction
from rlhf_lab.types.protocols import Engine


class ScoreNetwork(PolicyWithValues):
    """A reward model in the place of the policy: the value at the last token of a row is its score,
    and elsewhere zero, or with scores_all the score of what was read up to each token."""

    def __init__(self, model: Any, scores_all: bool = False) -> None:
        super().__init__(model, None, temperature=1.0)
        self.scores_all = scores_all

    def forward(
        self, token_rows: TokenRows, kind: PassKind, layout: PassLayout
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        """The responses are the whole rows, padded on the right, which a causal model cannot see
        past; the prompts are not read."""
        order_B = members_in_turn(token_rows.group_B)
        mask_BT = token_rows.mask_BT[order_B].long()
        hidden_BTD = self.policy.base_model(
            input_ids=token_rows.response_BT[order_B],
            attention_mask=mask_BT,
            position_ids=positions(mask_BT),
            use_cache=False,
        ).last_hidden_state
        none_BT = torch.zeros_like(token_rows.mask_BT)
        if self.scores_all:
            score_BT = self.policy.score(hidden_BTD)[:, :, 0].float() * mask_BT
            return none_BT, none_BT, score_BT[order_B.argsort()], None
        last_B = mask_BT.sum(dim=1) - 1
        last_BD = hidden_BTD[torch.arange(len(last_B), device=last_B.device), last_B]
        score_B = self.policy.score(last_BD)[:, 0].float()
        value_BT = none_BT.scatter(1, last_B.unsqueeze(1), score_B.unsqueeze(1))
        return none_BT, none_BT, value_BT[order_B.argsort()], None


def members_in_turn(group_B: Tensor) -> Tensor:
    """Row numbers with the first members of all groups before the second ones."""
    is_second_B = torch.zeros_like(group_B)
    is_second_B[1:] = (group_B.diff() == 0).to(group_B.dtype)
    return is_second_B.argsort(stable=True)


@dataclass(frozen=True)
class PairwiseLoss(SupervisedLoss):
    """Mean of `pair_loss` over the pairs of an update, which are the groups of its batch. target_N,
    margin_N: of the N pairs of the update, of which a micro-batch has P."""

    target_N: Tensor
    margin_N: Tensor

    def loss(self, policy: PolicyOutput, batch: Batch) -> LossOutput:
        assert policy.value_BT is not None, "the network of the stage scores rows"
        pair_P = batch.group_B[0::2]
        gap_P = gaps_of(policy.value_BT.sum(dim=1))
        target_P = self.target_N.to(gap_P.device)[pair_P]
        margin_P = self.margin_N.to(gap_P.device)[pair_P]
        return LossOutput(pair_loss(gap_P, target_P, margin_P).sum() / len(self.target_N))


def gaps_of(score_B: Tensor) -> Tensor:
    """Score of the chosen less score of the rejected of each pair, which are next to each other."""
    return score_B[0::2] - score_B[1::2]


def tokens_of(row: Row, side: str) -> list[int]:
    """Prompt and completion as the reward model reads them."""
    return [*row["prompt_tokens"], *row[f"{side}_tokens"]]


def pair_batch(rows: Sequence[Row]) -> Batch:
    """Pairs as a batch: each is a group of the chosen and the rejected answer."""
    sides = [tokens_of(row, side) for row in rows for side in ("chosen", "rejected")]
    return row_batch(sides, torch.arange(len(rows)).repeat_interleave(2))


def row_batch(rows: Sequence[Sequence[int]], group_B: Tensor) -> Batch:
    """Whole rows of tokens as responses to a prompt of one column of padding."""
    num, nothing_B1 = len(rows), torch.zeros(len(rows), 1, dtype=torch.long)
    mask_BT = pad_right([[1.0] * len(row) for row in rows], torch.float32)
    none_BT = torch.zeros_like(mask_BT)
    batch = Batch(
        prompt_BS=nothing_B1,
        prompt_mask_BS=nothing_B1,
        response_BT=pad_right(rows, torch.long),
        mask_BT=mask_BT,
        behavior_logp_BT=none_BT,
        proximal_logp_BT=none_BT,
        reference_logp_BT=none_BT,
        writer_logp_BT=none_BT,
        lag_BT=none_BT,
        entropy_BT=none_BT,
        value_BT=none_BT,
        credit_BT=none_BT,
        target_BT=none_BT,
        step_reward_BT=none_BT,
        turn_BT=torch.zeros_like(mask_BT, dtype=torch.long),
        weight_BT=none_BT,
        group_B=group_B,
        version_B=torch.zeros(num, dtype=torch.long),
        max_response_B=torch.full((num,), mask_BT.shape[1]),
        has_reference_B=torch.ones(num, dtype=torch.bool),
        log_ratio_gradient_B=torch.zeros(num),
        **no_text(num),
    )
    return Batch(**{**vars(batch), "weight_BT": token_weights(batch, Reduction.token_mean)})


def engine_gaps(engine: Engine, rows: Sequence[Row], size: int) -> Tensor:
    """The gap of each pair, `size` pairs at a time, without gradients."""
    starts = range(0, len(rows), size)
    parts = [engine.values(pair_batch(rows[start : start + size])) for start in starts]
    return torch.cat([gaps_of(value_BT.sum(dim=1)) for value_BT in parts])


def engine_scores(engine: Engine, rows: Sequence[Sequence[int]], size: int) -> Tensor:
    """The score of each row, `size` rows at a time, without gradients."""
    chunks = [rows[start : start + size] for start in range(0, len(rows), size)]
    values = [engine.values(row_batch(chunk, torch.arange(len(chunk)))) for chunk in chunks]
    return torch.cat([value_BT.sum(dim=1) for value_BT in values])
