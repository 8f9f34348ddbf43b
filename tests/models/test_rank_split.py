"""Micro-batches for several processes: even loads, every group once, limits kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.models.batching import collate
from rlhf_lab.models.microbatches import Microbatch, RankShares, group_sizes, rank_split, split
from rlhf_lab.types.data import Batch
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.support.engine_cases import groups


def tokens_of(batch: Batch, part: Microbatch) -> int:
    """Tokens of a micro-batch's groups, each padded to its own longest row."""
    return sum(size.tokens for size in group_sizes(part.batch))


def loads(batch: Batch, shares: RankShares) -> list[int]:
    """Tokens of each process."""
    hands = zip(*shares.turns, strict=True)
    return [
        sum(tokens_of(batch, shares.parts[number]) for number in hand if number is not None)
        for hand in hands
    ]


def share_used(turns: Sequence[Sequence[int]]) -> float:
    """Share of the processes' time that is used where a pass takes as long as its largest
    micro-batch. turns: padded tokens of the micro-batches abreast, 0 for none."""
    return sum(map(sum, turns)) / sum(max(turn) * len(turn) for turn in turns)


@given(
    num_groups=st.integers(1, 24),
    num_processes=st.integers(1, 7),
    max_rows=st.integers(1, 12),
    max_tokens=st.integers(0, 120),
    seed=st.integers(0, 20),
)
def test_every_process_gets_as_many_tokens_as_any_other(
    num_groups: int, num_processes: int, max_rows: int, max_tokens: int, seed: int
) -> None:
    batch = collate(groups(seed, num_groups), pad_id=0)
    shares = rank_split(batch, max_rows, max_tokens, num_processes)
    taken = sorted(number for turn in shares.turns for number in turn if number is not None)
    assert taken == list(range(len(shares.parts)))
    rows = torch.cat([part.index_B for part in shares.parts])
    assert sorted(rows.tolist()) == list(range(2 * num_groups))
    for part in shares.parts:
        is_one_group = len(set(part.batch.group_B.tolist())) == 1
        is_short = not max_tokens or part.padded_tokens <= max_tokens
        assert is_one_group or (len(part.batch) <= max_rows and is_short)
    again = rank_split(batch, max_rows, max_tokens, num_processes)
    assert again.turns == shares.turns
    if num_processes == 1:
        return
    sizes = group_sizes(batch)
    even = sum(size.tokens for size in sizes) / num_processes
    longest = max(size.tokens for size in sizes)
    assert all(abs(load - even) <= longest for load in loads(batch, shares))


@given(num_processes=st.integers(2, 7), max_rows=st.integers(2, 12), seed=st.integers(0, 20))
def test_all_processes_get_equally_many_where_there_are_groups_enough(
    num_processes: int, max_rows: int, seed: int
) -> None:
    batch = collate(groups(seed, 8 * num_processes), pad_id=0)
    shares = rank_split(batch, max_rows, 0, num_processes)
    assert len(shares.parts) == len(shares.turns) * num_processes


def test_one_process_gets_the_micro_batches_of_before() -> None:
    batch = collate(groups(0, 9), pad_id=0)
    shares = rank_split(batch, 4, 0, 1)
    rows = [part.index_B.tolist() for part in split(batch, 4)]
    assert [part.index_B.tolist() for part in shares.parts] == rows
    assert shares.turns == [(number,) for number in range(len(rows))]


def test_more_processes_than_groups_leave_some_without() -> None:
    shares = rank_split(collate(groups(0, 2), pad_id=0), 32, 0, 3)
    assert shares.turns == [(0, 1, None)]


@pytest.mark.parametrize("num_processes", [7, 8])
def test_256_rows_use_most_of_the_time_of_seven_processes(num_processes: int) -> None:
    """Whole micro-batches of 32 rows in the order of the prompts, dealt in turns, used 44% of the
    time of seven, and 60% of that of eight."""
    batch = collate(long_tailed(128), pad_id=0)
    shares = rank_split(batch, 32, 0, num_processes)
    parts = [part.padded_tokens for part in shares.parts]
    found = [[0 if n is None else parts[n] for n in turn] for turn in shares.turns]
    former = [part.padded_tokens for part in split(batch, 32)]
    former += [0] * (-len(former) % num_processes)
    before = [
        former[start : start + num_processes] for start in range(0, len(former), num_processes)
    ]
    assert share_used(found) > 0.8 > 0.61 > share_used(before)
    assert sum(map(max, found)) < 0.6 * sum(map(max, before))


def long_tailed(num_groups: int) -> list[Group]:
    """Groups of two responses with log-normal lengths to prompts of 20 to 99 tokens."""
    rng = torch.Generator().manual_seed(0)
    lengths = torch.randn(num_groups, 2, generator=rng).mul(0.6).exp().mul(40).long().clamp(1, 400)
    prompts = torch.randint(20, 100, (num_groups,), generator=rng)

    def sample(length: int) -> Sample:
        return Sample((4,) * length, (-1.0,) * length, 0, Finish.eos, "")

    return [
        Group(
            Prompt(number, (4,) * int(prompts[number]), Example("", "", "")),
            (sample(int(lengths[number, 0])), sample(int(lengths[number, 1]))),
            (0.0, 1.0),
        )
        for number in range(num_groups)
    ]
