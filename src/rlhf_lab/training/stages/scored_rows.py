"""Preference pairs as a reward model learns from them: their strength, their lengths, and the
network and loss of scored rows.

Preference strength is of Wang et al., Secrets of RLHF in Large Language Models Part II
(arXiv:2401.06080), section 2: the mean over voters of score(chosen) - score(rejected). The weakest
pairs are often labelled wrongly, the ones above them are ambiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rlhf_lab.models.batching import no_text, pad_right, token_weights
from rlhf_lab.models.forward import TokenRows, positions
from rlhf_lab.tasks.pairs import SIDES, swap_sides
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.training.stages.options import RewardModelOptions, Treatment
from rlhf_lab.training.stages.supervised import SupervisedLoss
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput, Reduction
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine

Row = dict[str, Any]


@dataclass(frozen=True)
class TrainingPairs:
    """Pairs with the probability that the chosen one is better, and the gap that it must exceed."""

    rows: Sequence[Row]
    target_P: Tensor
    margin_P: Tensor


def vote(gap_MP: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over voters (divided by their number, as in the paper)."""
    return gap_MP.mean(dim=0), gap_MP.std(dim=0, correction=0)


def weakest(strength_P: Tensor, share: float) -> Tensor:
    """A mask of the weakest share of pairs, P (rounded down); of ties, the first ones."""
    is_weak_P = torch.zeros(len(strength_P), dtype=torch.bool)
    is_weak_P[strength_P.argsort(stable=True)[: int(share * len(strength_P))]] = True
    return is_weak_P


def apply_treatment(
    rows: Sequence[Row], strength_P: Tensor | None, how: Treatment
) -> TrainingPairs:
    """The pairs to train on. strength_P: None if the treatment does not need it."""
    if strength_P is None:
        smooth_P = torch.full((len(rows),), 1 - how.smoothing)
        return TrainingPairs(rows, smooth_P, torch.zeros(len(rows)))
    rows, strength_P = flip_weakest(rows, strength_P, how.flip_share)
    is_soft_P = weakest(strength_P, how.soft_share)
    target_P = torch.where(is_soft_P, strength_P.sigmoid(), torch.tensor(1 - how.smoothing))
    margin_P = strength_P if how.margin else torch.zeros(len(rows))
    kept_P = ~weakest(strength_P, how.drop_share)
    kept = [row for row, keep in zip(rows, kept_P.tolist(), strict=True) if keep]
    return TrainingPairs(kept, target_P[kept_P], margin_P[kept_P])


def flip_weakest(rows: Sequence[Row], strength_P: Tensor, share: float) -> tuple[list[Row], Tensor]:
    """Swap the sides of the weakest share of pairs, and negate their strength."""
    is_weak_P = weakest(strength_P, share)
    swapped = [
        swap_sides(row) if weak else row for row, weak in zip(rows, is_weak_P.tolist(), strict=True)
    ]
    return swapped, torch.where(is_weak_P, -strength_P, strength_P)


def pair_loss(gap_P: Tensor, target_P: Tensor, margin_P: Tensor) -> Tensor:
    """-(target log sigmoid(gap - margin) + (1 - target) log sigmoid(margin - gap)), one a pair.

    Target 1 and margin 0: Bradley-Terry. Target 1 - a: label smoothing. Target sigmoid(strength):
    soft labels. Margin strength: adaptive margin. All from section 2 of arXiv:2401.06080.
    """
    beyond_P = gap_P - margin_P
    return -target_P * logsigmoid(beyond_P) - (1 - target_P) * logsigmoid(-beyond_P)


def strength_metrics(rows: Sequence[Row], strength_P: Tensor) -> dict[str, float]:
    """Mean strength, and the share of labels that gold scores (where known) contradict, among all
    pairs and among the weakest fifth."""
    found = {
        "strength_mean": float(strength_P.mean()),
        "strength_negative": float((strength_P < 0).float().mean()),
    }
    gold = gold_gaps(rows)
    if gold is None:
        return found
    is_wrong_P = (gold < 0).float()
    found["contradicted"] = float(is_wrong_P.mean())
    if (is_weak_P := weakest(strength_P, 0.2)).any():
        found["contradicted_weakest_fifth"] = float(is_wrong_P[is_weak_P].mean())
    return found


def gold_gaps(rows: Sequence[Row]) -> Tensor | None:
    """Gold score of the chosen less that of the rejected, one a pair; None if a pair has none."""
    sides = ("chosen_gold", "rejected_gold")
    if any(row.get(side) is None for row in rows for side in sides):
        return None
    return torch.tensor([row["chosen_gold"] - row["rejected_gold"] for row in rows])


def cut_pair(row: Row, ends: Sequence[int], options: RewardModelOptions) -> Row:
    """The pair with answers of at most the lengths of the options, as tokens. An answer that is cut
    keeps its end token, where the score is read (detail 12). Raises UserError for a prompt that
    leaves no room."""
    sides = {f"{side}_tokens": row[f"{side}_tokens"] for side in SIDES}
    for name, tokens in sides.items():
        limit = min(options.max_response_tokens or len(tokens), room_of(row, options, len(tokens)))
        if len(tokens) > limit:
            last = tokens[-1] if tokens[-1] in ends else tokens[limit - 1]
            sides[name] = [*tokens[: limit - 1], last]
    return {**row, **sides}


def room_of(row: Row, options: RewardModelOptions, enough: int) -> int:
    """Tokens that the prompt leaves for an answer; `enough` where no length of both is set."""
    if not options.max_tokens:
        return enough
    room = options.max_tokens - len(row["prompt_tokens"])
    if room < 2:
        raise UserError(
            f"reward_model.max_tokens={options.max_tokens}: the prompt {row['prompt'][:60]!r} has "
            f"{len(row['prompt_tokens'])} tokens, which leave no room for an answer: raise it, or "
            "shorten the row"
        )
    return room


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
