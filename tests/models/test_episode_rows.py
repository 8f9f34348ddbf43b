"""Episodes as rows of a batch: what models read of them, and at which of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import of_policy, policy_columns, response_output, token_rows
from rlhf_lab.models.last_token_forward import last_column_stack, response_logps
from rlhf_lab.models.microbatches import Microbatch, group_sizes, split
from rlhf_lab.types.data import PolicyOutput, Writer
from rlhf_lab.types.samples import Group, Sample
from tests.support.engine_cases import groups, policy
from tests.support.environments import acted, prompt
from tests.support.episode_rows import manual_logps, ragged

PLAIN = groups(0)


def by_hand() -> list[Group]:
    """Two observations, one of them before the first token, beside a sample without any."""
    first = acted([5, 6, 7], [(0, (20, 21)), (2, (22,))])
    return [Group(prompt(), (first, acted([8, 9], [])))]


def test_columns_of_all_text_by_hand() -> None:
    batch = collate(by_hand(), pad_id=3)
    pad, own, other = (int(Writer.padding), int(Writer.policy), int(Writer.environment))
    assert batch.text_BU.tolist() == [[20, 21, 5, 6, 22, 7], [8, 9, 3, 3, 3, 3]]
    assert batch.writer_BU.tolist() == [
        [other, other, own, own, other, own],
        [own, own, pad, pad, pad, pad],
    ]
    assert batch.response_BT.tolist() == [[5, 6, 7], [8, 9, 3]]
    assert batch.mask_BT.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.has_environment
    assert batch.read_length_B.tolist() == [6, 2]
    rows = token_rows(batch)
    assert torch.equal(rows.response_BT, batch.text_BU)
    assert rows.mask_BT.tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0]]


def test_tokens_have_the_number_of_their_turn() -> None:
    turns = [(1, 0.0), (2, 0.5), (5, 1.0)]
    first = acted([5, 6, 7, 8, 9, 10], [(2, (22,))], turns)
    batch = collate([Group(prompt(), (first, acted([8, 9], [])))], pad_id=0)
    assert batch.turn_BT.tolist() == [[0, 0, 1, 2, 2, 2], [0, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("given", [PLAIN, [Group(prompt(), (acted([5, 6], []),))]])
def test_rows_without_an_observation_have_no_columns_of_text(given: list[Group]) -> None:
    batch = collate(given, pad_id=0)
    assert batch.text_BU.shape == batch.writer_BU.shape == (len(batch), 0)
    assert not batch.has_environment
    assert torch.equal(batch.read_length_B, batch.mask_BT.sum(dim=1))
    rows = token_rows(batch)
    assert rows.response_BT is batch.response_BT and rows.mask_BT is batch.mask_BT
    found_BT = torch.rand(batch.mask_BT.shape)
    assert policy_columns(found_BT, batch) is found_BT


def test_what_is_found_for_all_text_is_kept_at_the_policys_tokens() -> None:
    batch = collate(by_hand(), pad_id=0)
    text_BU = torch.arange(12.0).view(2, 6) + 1
    found = PolicyOutput(
        logp_BT=text_BU,
        entropy_BT=-text_BU,
        top_BTK=torch.stack([text_BU, 2 * text_BU], dim=2).long(),
    )
    kept = of_policy(found, batch)
    assert kept.logp_BT.tolist() == [[3, 4, 6], [7, 8, 0]]
    assert kept.entropy_BT.tolist() == [[-3, -4, -6], [-7, -8, 0]]
    assert kept.top_BTK is not None and kept.value_BT is None
    assert kept.top_BTK.tolist() == [[[3, 6], [4, 8], [6, 12]], [[7, 14], [8, 16], [0, 0]]]
    assert kept.top_BTK.dtype is torch.long


def samples_of(given: Sequence[Group]) -> list[tuple[Group, Sample]]:
    return [(group, sample) for group in given for sample in group.samples]


@pytest.mark.parametrize("temperatures", [[1.0], [0.7, 1.3]])
@pytest.mark.parametrize("is_stack", [True, False])
def test_rows_read_by_their_last_columns(temperatures: list[float], is_stack: bool) -> None:
    given = ragged()
    model, batch = policy(), collate(given, pad_id=0)
    stack = last_column_stack(model) if is_stack else None
    assert (stack is not None) == is_stack
    with torch.no_grad():
        found = response_logps(model, stack, batch, temperatures)
    for logp_BT, temperature in zip(found, temperatures, strict=True):
        expected_BT = manual_logps(model, given, temperature)
        torch.testing.assert_close(logp_BT, expected_BT, atol=2e-5, rtol=0)


def is_whole(part: Microbatch, given: Sequence[Group]) -> None:
    """Every row has all of its text, and some row needs the last column."""
    rows = samples_of(given)
    batch = part.batch
    for place, index in enumerate(part.index_B.tolist()):
        group, sample = rows[index]
        is_prompt_S = batch.prompt_mask_BS[place] > 0
        assert batch.prompt_BS[place][is_prompt_S].tolist() == list(group.prompt.tokens)
        read = token_rows(batch)
        is_text_T = read.mask_BT[place] > 0
        assert read.response_BT[place][is_text_T].tolist() == list(sample.all_tokens)
        assert batch.response_BT[place][batch.mask_BT[place] > 0].tolist() == list(sample.tokens)
    chosen = [rows[index][1] for index in part.index_B.tolist()]
    longest = max(len(sample.all_tokens) for sample in chosen)
    assert batch.text_BU.shape[1] == longest
    assert batch.mask_BT.shape[1] == max(len(sample.tokens) for sample in chosen)
    width = batch.prompt_BS.shape[1] + longest
    assert part.padded_tokens == len(batch) * width


@pytest.mark.parametrize(
    ("max_rows", "max_tokens"), [(2, 0), (4, 0), (100, 0), (4, 60), (100, 90), (1, 1)]
)
def test_micro_batches_cut_no_text(max_rows: int, max_tokens: int) -> None:
    given = ragged()
    batch = collate(given, pad_id=0)
    parts = list(split(batch, max_rows, max_tokens))
    places = [index for part in parts for index in part.index_B.tolist()]
    assert sorted(places) == list(range(len(batch)))
    for part in parts:
        is_whole(part, given)
        if max_tokens and len(set(part.batch.group_B.tolist())) > 1:
            assert part.padded_tokens <= max_tokens


def test_groups_are_as_long_as_all_of_their_text() -> None:
    given = ragged()
    sizes = group_sizes(collate(given, pad_id=0))
    assert [size.response for size in sizes] == [
        max(len(sample.all_tokens) for sample in group.samples) for group in given
    ]


def gradients(model: torch.nn.Module, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("num_chunks", [1, 3])
def test_gradients_are_of_the_policys_tokens_alone(num_chunks: int) -> None:
    """Those of a loss that is masked by hand, and not of one over all text."""
    given = ragged()
    model, batch = policy(), collate(given, pad_id=0)
    weight_BT = torch.linspace(0.5, 1.5, batch.mask_BT.numel()).view_as(batch.mask_BT)

    def learnt(read: Tensor) -> list[Tensor]:
        return gradients(model, -(read * weight_BT).sum())

    output = response_output(model, token_rows(batch), 0.7, num_chunks=num_chunks)
    mine = learnt(of_policy(output, batch).logp_BT)
    expected = learnt(manual_logps(model, given, 0.7))
    largest = max(float(tensor.abs().max()) for tensor in expected)
    for one, other in zip(mine, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * largest, rtol=1e-4)
