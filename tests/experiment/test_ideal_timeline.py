from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.experiment.planning.ideal_timeline import Work, ideal
from rlhf_lab.experiment.planning.overlap_advice import overlap
from rlhf_lab.rollout.budget import StalenessBudget


def even(rounds: int, generate: float, train: float, chunks: int = 1) -> Work:
    return Work([[generate] * chunks] * rounds, [train] * rounds)


def test_on_policy_with_a_generator_both_take_turns() -> None:
    timeline = ideal(even(3, 1, 1), max_staleness=0, num_generators=1)
    assert timeline.generate == (((0, 1),), ((2, 3),), ((4, 5),))
    assert timeline.train == ((1, 2), (3, 4), (5, 6))
    assert (timeline.wall, timeline.trainer_wait, timeline.generator_wait) == (6, 3, 3)


def test_one_round_of_staleness_hides_equal_generation_but_for_the_first() -> None:
    timeline = ideal(even(5, 1, 1), max_staleness=1, num_generators=1)
    assert timeline.generate == (((0, 1),), ((1, 2),), ((2, 3),), ((3, 4),), ((4, 5),))
    assert (timeline.wall, timeline.trainer_wait, timeline.generator_wait) == (6, 1, 1)


def test_a_training_bound_run_trains_without_a_break() -> None:
    # Round 2 needs version 1: generated from 4 to 5, used from 7 on; round 3 from 7 to 8.
    timeline = ideal(even(4, 1, 3), max_staleness=1, num_generators=1)
    assert timeline.generate == (((0, 1),), ((1, 2),), ((4, 5),), ((7, 8),))
    assert timeline.train == ((1, 4), (4, 7), (7, 10), (10, 13))
    assert (timeline.trainer_wait, timeline.generator_wait) == (1, 9)


def test_a_generation_bound_run_generates_without_a_break() -> None:
    timeline = ideal(even(4, 3, 1), max_staleness=1, num_generators=1)
    assert timeline.train == ((3, 4), (6, 7), (9, 10), (12, 13))
    assert (timeline.trainer_wait, timeline.generator_wait) == (9, 1)


def test_two_generators_share_the_chunks_of_a_round() -> None:
    # Chunk 2 (round 1) goes to the generator that is free at 1, chunk 3 to the one at 2.
    work = Work([[1, 2], [3, 1], [1, 1]], [1, 1, 1])
    timeline = ideal(work, max_staleness=1, num_generators=2)
    assert timeline.generate == (((0, 1), (0, 2)), ((1, 4), (2, 3)), ((3, 4), (4, 5)))
    assert timeline.train == ((2, 3), (4, 5), (5, 6))
    assert (timeline.wall, timeline.trainer_wait, timeline.generator_wait) == (6, 3, 3)


def test_a_second_round_of_staleness_absorbs_uneven_generation() -> None:
    work = Work([[1], [1], [4], [1], [1]], [2] * 5)
    one, two = (ideal(work, staleness, 1) for staleness in (1, 2))
    # S=1: round 2 starts with version 1 at 3 and ends at 7, so training waits from 5 to 7.
    assert one.generate == (((0, 1),), ((1, 2),), ((3, 7),), ((7, 8),), ((9, 10),))
    assert one.train == ((1, 3), (3, 5), (7, 9), (9, 11), (11, 13))
    # S=2: round 2 starts with version 0 at 2 and ends at 6.
    assert two.generate == (((0, 1),), ((1, 2),), ((2, 6),), ((6, 7),), ((7, 8),))
    assert two.train == ((1, 3), (3, 5), (6, 8), (8, 10), (10, 12))


def test_a_trainer_that_generates_by_itself_never_waits() -> None:
    timeline = ideal(Work([[1, 1], [2], [3]], [5, 6, 7]), max_staleness=1, num_generators=0)
    assert timeline.generate == (((0, 1), (1, 2)), ((2, 4),), ((9, 12),))
    assert timeline.train == ((4, 9), (12, 18), (18, 25))
    assert (timeline.trainer_wait, timeline.generator_wait) == (0, 0)


def test_a_run_without_rounds_takes_no_time() -> None:
    assert ideal(Work([], []), 1, 1).wall == ideal(Work([], []), 1, 0).wall == 0


seconds = st.integers(0, 9)
rounds = st.lists(st.tuples(st.lists(seconds, min_size=1, max_size=4), seconds), max_size=8)
works = rounds.map(lambda rows: Work([chunks for chunks, _ in rows], [t for _, t in rows]))
staleness = st.integers(0, 4)
generators = st.integers(1, 4)


@given(works, staleness, generators)
def test_neither_staleness_nor_generators_make_any_round_later(work: Work, s: int, g: int) -> None:
    ends = [end for _, end in ideal(work, s, g).train]
    for other in (ideal(work, s + 1, g), ideal(work, s, g + 1)):
        assert all(end <= before for (_, end), before in zip(other.train, ends, strict=True))


@given(works, staleness, generators)
def test_the_wall_lies_between_the_busiest_lane_and_the_sum(work: Work, s: int, g: int) -> None:
    timeline = ideal(work, s, g)
    total = work.generating + sum(work.train)
    assert timeline.wall >= max(sum(work.train), work.generating / g)
    assert timeline.wall <= total == ideal(work, s, 0).wall
    assert timeline.trainer_wait == timeline.wall - sum(work.train)
    assert timeline.generator_wait == g * timeline.wall - work.generating


@given(works, staleness, generators)
def test_every_span_keeps_the_order_and_the_budget(work: Work, s: int, g: int) -> None:
    timeline = ideal(work, s, g)
    assert all(before[1] <= after[0] for before, after in pairwise(timeline.train))
    for round_, spans in enumerate(timeline.generate):
        version = max(0, round_ - s)
        published = timeline.train[version - 1][1] if version else 0
        assert all(start >= published for start, _ in spans)
        assert timeline.train[round_][0] >= max(end for _, end in spans)
    starts = [start for spans in timeline.generate for start, _ in spans]
    assert starts == sorted(starts)
    flat = [span for spans in timeline.generate for span in spans if span[0] < span[1]]
    assert all(sum(a <= start < b for a, b in flat) <= g for start, _ in flat)


@given(works, staleness)
def test_a_trainer_alone_generates_what_the_budget_admits(work: Work, s: int) -> None:
    timeline = ideal(work, s, 0)
    budget = StalenessBudget(s, chunks_per_round=1, num_rounds=len(work.train))
    spans = [*timeline.train, *((a, b) for row in timeline.generate for a, b in row)]
    assert sum(end - start for start, end in spans) == timeline.wall
    for round_, (trained, _) in enumerate(timeline.train):
        for admitted in budget.admit(round_):
            before = timeline.train[round_ - 1][1] if round_ else 0
            assert all(before <= a and b <= trained for a, b in timeline.generate[admitted])


def test_without_generators_the_advice_is_what_asynchrony_would_bring() -> None:
    found = overlap(even(9, 1, 1), max_staleness=0, num_generators=0, actual_wall=20)
    assert found.cells == ("20.0s", "18.0s (90%)", "-", "-", "generation 50%, training 50%")
    apart, here = found.advice
    assert "ideally take 10.0s, 1.80 times as fast" in apart
    assert "less than 1.80 times as long" in here


def test_a_generation_bound_run_is_advised_what_makes_samples_cheaper() -> None:
    # One generator: 4 rounds of 2 chunks of 3 s, then 1 s; two generators: 4 * 3 + 1.
    found = overlap(even(4, 3, 1, chunks=2), max_staleness=1, num_generators=1, actual_wall=50)
    assert found.cells == ("50.0s", "25.0s (50%)", "21.0s (84%)", "1.00s (4%)", "generation")
    cheaper, generator, staleness = found.advice
    assert "run.passes" in cheaper and "run.group_size" in cheaper
    assert generator.endswith("(mode.num_generators) ideally saves 48%")
    assert staleness == "mode.max_staleness=2 ideally saves nothing"


def test_a_training_bound_run_is_advised_to_use_its_idle_generators() -> None:
    # 99 * 1 s of generation in 199 s: twice the samples make the first round 1.01 s longer.
    found = overlap(even(99, 1, 2), max_staleness=1, num_generators=1, actual_wall=199)
    assert found.cells[1:] == ("199s (100%)", "1.00s (1%)", "100s (50%)", "training")
    assert found.advice[0].startswith(
        "2.01 times the samples per prompt (run.group_size) would ideally cost"
    )


def test_a_run_that_takes_turns_is_advised_to_be_one_round_stale() -> None:
    found = overlap(even(9, 1, 1), max_staleness=0, num_generators=1, actual_wall=18)
    assert found.cells[-1] == "taking turns (S=0)"
    assert found.advice == ("mode.max_staleness=1 ideally saves 44%",)


def test_more_staleness_is_advised_where_it_helps() -> None:
    work = Work([[1], [1], [4], [1], [1]], [2] * 5)
    assert overlap(work, 1, 1, actual_wall=13).advice[-1].endswith("=2 ideally saves 8%")


@pytest.mark.parametrize("num_generators", [0, 1])
def test_a_run_that_took_no_time_has_an_overlap(num_generators: int) -> None:
    assert overlap(even(1, 0, 0), 1, num_generators, actual_wall=0).cells[0] == "0.00s"
