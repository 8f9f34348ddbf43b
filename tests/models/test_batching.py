"""Padding, token weights, minibatches and micro-batches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.models.batching import collate, minibatches, pad_left, token_weights
from rlhf_lab.models.microbatches import micro_batches
from rlhf_lab.types.data import Credit, Reduction
from tests.support.examples import group

GROUPS = [group(i, [[-1.0] * (1 + (i + k) % 4) for k in range(2)], [0.0, 1.0]) for i in range(8)]


def test_prompts_are_padded_left_and_responses_right() -> None:
    tokens, mask = pad_left([[3, 4], [5]], fill=9)
    assert tokens.tolist() == [[3, 4], [9, 5]]
    assert mask.tolist() == [[1, 1], [0, 1]]
    batch = collate(GROUPS[:2], pad_id=1)
    assert batch.response_BT[0].tolist() == [5, 1, 1]
    assert batch.behavior_logp_BT[1].tolist() == [-1.0, -1.0, 0.0]
    assert batch.group_B.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("reduction", list(Reduction))
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_token_weights_sum_to_one(reduction: Reduction, lengths: list[int]) -> None:
    groups = [group(i, [[-1.0] * length], [0.0]) for i, length in enumerate(lengths)]
    batch = collate(groups, pad_id=0, limit=10)
    weight_BT = token_weights(batch, reduction)
    # per_limit alone leaves the share that rows of full length would have had.
    whole = sum(lengths) / (10 * len(lengths)) if reduction is Reduction.per_limit else 1.0
    assert float(weight_BT.sum()) == pytest.approx(whole, abs=1e-5)
    assert bool((weight_BT[batch.mask_BT == 0] == 0).all())


def test_the_mean_of_prompts_by_hand() -> None:
    groups = [group(0, [[-1.0] * 3, [-1.0]], [0.0, 1.0]), group(1, [[-1.0] * 5], [0.0])]
    batch = collate([*groups, group(2, [[-1.0] * 9], [0.0])], pad_id=0)
    # prompts of 4, 5 and 9 tokens
    weight_BT = token_weights(batch, Reduction.prompt_mean)
    assert weight_BT.amax(dim=1).tolist() == pytest.approx([1 / 12, 1 / 12, 1 / 15, 1 / 27])
    # the first two alone, in another order and without a row: prompts of 5 and 3 tokens
    part = batch.rows(torch.tensor([2, 0]))
    assert token_weights(part, Reduction.prompt_mean).amax(dim=1).tolist() == pytest.approx(
        [1 / 10, 1 / 6]
    )


@pytest.mark.parametrize("reduction", list(Reduction))
def test_a_minibatch_without_rows_has_no_weights(reduction: Reduction) -> None:
    batch = collate(GROUPS[:2], pad_id=0).rows(torch.zeros(0, dtype=torch.long))
    assert token_weights(batch, reduction).shape == batch.mask_BT.shape


def test_a_pass_uses_every_group_once_in_equal_minibatches() -> None:
    batch = collate(GROUPS, pad_id=0)
    credit = Credit(torch.ones_like(batch.mask_BT), torch.ones(16, dtype=torch.bool))
    order_P = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    parts = list(minibatches(batch, credit, Reduction.sequence_mean, 4, order_P))
    assert [part.group_B.tolist() for part in parts] == [
        [3, 3, 1, 1],
        [7, 7, 0, 0],
        [2, 2, 6, 6],
        [5, 5, 4, 4],
    ]
    assert all(float(part.weight_BT.sum()) == pytest.approx(1.0) for part in parts)


def test_rows_without_credit_are_left_out_but_their_minibatch_keeps_its_place() -> None:
    batch = collate(GROUPS[:4], pad_id=0)
    keep_B = torch.tensor([True, True, False, False, True, False, False, False])
    credit = Credit(torch.ones_like(batch.mask_BT), keep_B)
    parts = list(minibatches(batch, credit, Reduction.token_mean, 2, torch.tensor([1, 3, 0, 2])))
    assert [len(part) for part in parts] == [0, 3]
    assert float(parts[1].weight_BT.sum()) == pytest.approx(1.0)


@given(max_rows=st.integers(1, 20))
def test_micro_batches_keep_groups_whole_and_cut_padding(max_rows: int) -> None:
    batch = collate(GROUPS, pad_id=0)
    parts = list(micro_batches(batch, max_rows))
    assert torch.cat([part.group_B for part in parts]).tolist() == batch.group_B.tolist()
    for part in parts:
        assert len(part) <= max(2, max_rows)
        assert part.mask_BT.shape[1] == int(part.mask_BT.sum(dim=1).max())
        assert len(part) % 2 == 0
