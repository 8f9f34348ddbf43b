"""Waits for tools: drawn from the seed, spent on the clock of a virtual cluster, cut at a
deadline."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.cluster.simulate import Simulation, Work, simulate, virtual_mode
from rlhf_lab.rollout.cluster.writer import tool_waits
from rlhf_lab.rollout.generators.episode_options import ToolTimes
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.types.samples import Finish, Sample
from tests.support.environments import Play, Script
from tests.support.given_actions import played, said
from tests.support.virtual_files import PLAIN, work

THREE = [[said("1")], [said("2")], [said("12")]]
WORLD = Play(lambda: Script([Turn("1;"), Turn("2", 0.5), Turn(is_done=True)]))
Rounds = list[tuple[float, float]]


def lives(found: Simulation) -> Rounds:
    """Virtual start and end of each chunk."""
    names = ("virtual_seconds_start", "virtual_seconds_end")
    return [(row[names[0]], round(row[names[1]], 6)) for row in found.rows]


def waiting(options: ClusterOptions, source: Work, waits: list[Any], staleness: int) -> Simulation:
    source = replace(source, waits=lambda number: waits[number])
    return simulate(options, virtual_mode(staleness), source)


def test_times_are_log_normal_and_a_function_of_seed_and_turn() -> None:
    times = ToolTimes(median=2.0, sigma=0.7)
    drawn = np.log([times.seconds(seed, turn) for seed in range(400) for turn in (1, 2, 3)])
    assert np.mean(drawn) == pytest.approx(math.log(2), abs=0.06)
    assert np.std(drawn) == pytest.approx(0.7, abs=0.04)
    assert times.seconds(7, 2) == times.seconds(7, 2) != times.seconds(7, 1)
    assert {ToolTimes(3.0).seconds(seed, 1) for seed in range(9)} == {3.0}


def test_a_row_keeps_its_place_while_its_tool_works() -> None:
    # Three tokens, four seconds of the tool, two tokens: nine seconds, in which the second row of
    # six tokens goes on. The generator has two places, so that the next chunk begins with the last.
    options = replace(PLAIN, sequences=2)
    found = waiting(options, work([(5, 6)]), [[[(3, 4.0)], ()]], 0)
    assert lives(found) == [(0, 9)]
    last = found.rounds[-1]
    assert last["virtual_seconds/generate"] == pytest.approx(8)
    # From the end of the sixth step of the other row until the answer.
    assert last["virtual_seconds/tool_wait"] == pytest.approx(1)
    two = waiting(options, work([(5, 6), (1, 1)], per_round=2), [[[(3, 4.0)], ()], []], 0)
    assert lives(two)[1] == pytest.approx((9, 10))


def test_a_tool_that_answers_within_a_step_waits_for_its_end() -> None:
    options = replace(PLAIN, sequences=2)
    found = waiting(options, work([(2, 9)]), [[[(1, 2.5)], ()]], 0)
    # At 3.5 the answer is there; the row is decoded from 4 on.
    assert lives(found) == [(0, 9)]
    alone = waiting(options, work([(2,)]), [[[(1, 2.5)]]], 0)
    assert lives(alone) == [(0, 4.5)]


def test_a_wait_behind_the_last_token_ends_the_row_with_it() -> None:
    options = replace(PLAIN, sequences=3)
    found = waiting(options, work([(2, 2)]), [[[(2, 5.0)], ()]], 0)
    assert lives(found) == [(0, 7)]
    # The place of the row that has ended is free for another chunk.
    two = waiting(options, work([(2, 2), (4,)], per_round=2), [[[(2, 5.0)], ()], []], 0)
    assert sorted(lives(two)) == [(0, 4), (0, 7)]


@given(
    rows=st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 20), st.floats(0, 30)), min_size=8, max_size=8
    ),
    staleness=st.integers(0, 2),
    generators=st.integers(1, 3),
    failing=st.booleans(),
)
def test_every_row_takes_its_tokens_and_its_waits(
    rows: list[tuple[int, int, float]], staleness: int, generators: int, failing: bool
) -> None:
    options = replace(*(PLAIN,), sequences=2, generators=generators, failure_seconds=40.0 * failing)
    lengths = [(first + second,) for first, second, _ in rows]
    waits = [[[(first, seconds)]] for first, _, seconds in rows]
    found = waiting(options, work(lengths, per_round=2), waits, staleness)
    for row, (start, end) in zip(found.rows, lives(found), strict=True):
        first, second, seconds = rows[row["chunk"]]
        assert end - start >= first + second + seconds - 1e-6
    last = found.rounds[-1]
    assert last["virtual/decoded_tokens"] - last["virtual/lost_tokens"] == sum(map(sum, lengths))
    assert found == waiting(options, work(lengths, per_round=2), waits, staleness)
    walls = [one["virtual_seconds/wall"] for one in found.rounds]
    assert all(after > before for before, after in pairwise(walls))


def sample_of(**options: Any) -> Sample:
    (sample,) = played(WORLD, THREE, **options).samples
    assert sample.episode is not None
    return sample


def test_each_observation_takes_its_time_and_the_last_turn_none() -> None:
    sample, untimed = sample_of(tool_seconds=2.0, tool_sigma=1.0), sample_of()
    assert sample.episode and untimed.episode
    assert len(sample.episode.waits) == 2 and len(set(sample.episode.waits)) == 2
    assert untimed.episode.waits == ()
    assert replace(sample.episode, waits=()) == untimed.episode
    # An action of two tokens; then an observation of two and an action of two; and so on.
    assert list(sample.turn_ends) == [2, 2 + 2 + 2, 6 + 1 + 3]
    options = replace(PLAIN, length_scale=10)
    first, second = sample.episode.waits
    assert tool_waits(sample, options, 100) == [(20, first), (60, second)]
    assert tool_waits(untimed, options, 100) == []


def test_an_observation_behind_the_deadline_is_not_read() -> None:
    late = sample_of(tool_seconds=2.0, tool_deadline=3.0)
    assert late.episode and late.finish is Finish.length
    assert (late.episode.waits, late.episode.is_late) == ((2.0, 1.0), True)
    # The reward of the turn whose observation is not there is kept.
    assert [reward for _, reward in late.episode.turns] == [0.0, 0.5]
    assert len(late.episode.observed) == 1 and not late.episode.is_done
    in_time = sample_of(tool_seconds=2.0, tool_deadline=4.0)
    assert in_time.episode and not in_time.episode.is_late
    assert in_time.finish is Finish.eos
