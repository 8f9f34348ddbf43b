"""The virtual cluster with given lengths: hand-worked times, closed forms, conservation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.rollout.cluster.options import TakeOrder, WeightUpdate
from rlhf_lab.rollout.cluster.simulate import Simulation, Work, simulate, virtual_mode
from rlhf_lab.rollout.mode import WhenStale
from rlhf_lab.types.errors import UserError
from tests.support.variants import tuples
from tests.support.virtual_files import PLAIN, work

pytestmark = pytest.mark.usefixtures("costly")


def taken(found: Simulation) -> list[tuple[int, int, float, float, float]]:
    """Chunk, version, and virtual start, end and taking of each row of the schedule."""
    times = ("virtual_seconds_start", "virtual_seconds_end", "virtual_seconds_taken")
    return [
        (row["chunk"], row["segments"][0][1], *(round(row[name], 6) for name in times))
        for row in found.rows
    ]


def test_a_synchronous_cluster_takes_turns() -> None:
    found = simulate(PLAIN, virtual_mode(0), work([(4,), (6,), (5,)]))
    assert taken(found) == [(0, 0, 0, 4, 4), (1, 1, 14, 20, 20), (2, 2, 30, 35, 35)]
    last = found.rounds[-1]
    assert last["virtual_seconds/wall"] == pytest.approx(45)
    assert last["virtual_seconds/wait"] == pytest.approx(4 + 6 + 5)
    assert last["virtual_seconds/train"] == pytest.approx(30)
    assert last["virtual_seconds/generator_wait"] == pytest.approx(30)


def test_one_round_ahead_overlaps_and_drains_before_it_loads() -> None:
    # 0 and 1 are begun by version 0. Chunk 1 is written while round 0 trains (4 to 14), so 2 begins
    # with version 1 at 14, and so on.
    found = simulate(PLAIN, virtual_mode(1), work([(4,), (6,), (5,), (25,)]))
    assert taken(found) == [
        (0, 0, 0, 4, 4),
        (1, 0, 4, 10, 14),
        (2, 1, 14, 19, 24),
        (3, 2, 24, 49, 49),
    ]
    assert found.lags == [0, 1, 1, 1]


def test_sequences_share_a_step_and_free_their_places_one_by_one() -> None:
    # Three rows of 2, 3 and 5 tokens: steps of 1.3, 1.3, 1.2, 1.1 and 1.1 seconds.
    options = replace(PLAIN, sequences=4, step_seconds_per_sequence=0.1)
    found = simulate(options, virtual_mode(0), work([(2, 3, 5)]))
    assert taken(found) == [(0, 0, 0, 6.0, 6.0)]
    # A second chunk of two rows fits once two rows have ended, after three steps: then 1.3 twice.
    found = simulate(options, virtual_mode(0), work([(2, 3, 5), (1, 2, 1)], per_round=2))
    assert taken(found)[1] == (1, 0, 3.8, 6.4, 6.4)


def test_prompts_are_read_before_a_chunk_begins() -> None:
    options = replace(PLAIN, prefill_tokens_per_second=2.0)
    found = simulate(options, virtual_mode(0), work([(4,)], prompt=3))
    assert taken(found) == [(0, 0, 0, 5.5, 5.5)]


def test_rounds_take_what_is_finished_first_and_wait_for_what_becomes_too_old() -> None:
    options = replace(PLAIN, sequences=4)
    lengths = [(30,), (1,), (1,), (1,), (1,), (1,)]
    found = simulate(options, virtual_mode(1), work(lengths, per_round=2))
    # Round 0 takes chunks 1 and 2. Chunk 0, of version 0, must be in round 1, which waits for it.
    assert [row[0] for row in taken(found)] == [1, 2, 3, 0, 4, 5]
    assert found.rows[3]["virtual_seconds_taken"] == pytest.approx(30)
    in_order = simulate(
        replace(options, order=TakeOrder.submission), virtual_mode(1), work(lengths, per_round=2)
    )
    assert [row[0] for row in taken(in_order)] == list(range(6))


def test_what_became_too_old_is_dropped_and_replaced() -> None:
    options = replace(PLAIN, sequences=8)
    lengths = [(25,), *[(1,)] * 11]
    mode = virtual_mode(1, when_stale=WhenStale.drop, extra_rounds=1)
    found = simulate(options, mode, replace(work(lengths, per_round=2), num_rounds=4))
    dropped = [row["chunk"] for row in found.rows if row["dropped"]]
    assert 0 in dropped, "it ends after 25 seconds, when version 2 trains"
    assert len(found.lags) == 8 and max(found.lags) <= 1
    others = len(dropped) - 1
    assert found.tokens[1] + 25 + others + len(found.lags) == found.tokens[0]


def exponential(rng: np.random.Generator, mean: float, count: int) -> list[int]:
    return [int(draw) for draw in np.ceil(rng.exponential(mean, count))]


@pytest.mark.parametrize(
    ("staleness", "ratio"),
    tuples(product([0, 1, 3], [0.5, 1.0, 2.0]), [(0, 1.0), (1, 2.0), (3, 0.5), (3, 1.0)]),
)
def test_a_closed_queue_of_two_stations_has_its_closed_form(staleness: int, ratio: float) -> None:
    """One generator of one sequence, exponential lengths, exponential training, a chunk a round:
    S + 1 chunks go round between two exponential servers (Gordon and Newell 1967). ratio: mean
    training over mean generation.

    The trainer is busy for 1 - (1 - r) / (1 - r^(N + 1)), N = S + 1. A chunk begins when the one
    before it has ended, which then sees 0 to N - 1 chunks at the trainer with weights r^k (arrival
    theorem), and is as many rounds old, plus itself, when it is trained on, but at most S.
    """
    number, count, rng = staleness + 1, 3000, np.random.default_rng(7)
    lengths, prompts = exponential(rng, 50, count + 9), exponential(rng, 5000, count + 9)
    options = replace(
        PLAIN,
        step_seconds=0.02,
        round_seconds=0.0,
        train_tokens_per_second=5000 / ratio,
        order=TakeOrder.submission,
    )
    source = Work(lambda n: (lengths[n],), lambda n: prompts[n], 10**6, 1, count)
    found = simulate(options, virtual_mode(staleness), source)
    weights = ratio ** np.arange(number + 1)
    busy = weights[1:].sum() / weights.sum()
    last = found.rounds[-1]
    assert last["virtual_seconds/train"] / last["virtual_seconds/wall"] == pytest.approx(
        busy, abs=0.03
    )
    seen = ratio ** np.arange(number)
    ages = np.minimum(np.arange(1, number + 1), staleness)
    assert np.mean(found.lags) == pytest.approx((seen * ages).sum() / seen.sum(), abs=0.12)


@pytest.mark.parametrize(("tokens", "train"), [(4, 10), (10, 10), (30, 10)])
def test_equal_rounds_overlap_as_the_slower_lane_allows(tokens: int, train: int) -> None:
    rounds = 40
    options = replace(PLAIN, round_seconds=float(train))
    same = work([(tokens,)] * rounds)
    sync = simulate(options, virtual_mode(0), same).rounds[-1]["virtual_seconds/wall"]
    ahead = simulate(options, virtual_mode(1), same).rounds[-1]["virtual_seconds/wall"]
    assert sync == pytest.approx(rounds * (tokens + train))
    assert ahead == pytest.approx(tokens + (rounds - 1) * max(tokens, train) + train)


def test_littles_law_holds_of_chunks_that_wait_or_are_written() -> None:
    rng = np.random.default_rng(3)
    lengths = [tuple(exponential(rng, 40, 4)) for _ in range(400)]
    options = replace(PLAIN, generators=2, sequences=16, round_seconds=60.0)
    found = simulate(options, virtual_mode(2), work(lengths, per_round=4))
    spans = [(row["virtual_seconds_start"], row["virtual_seconds_taken"]) for row in found.rows]
    wall = max(end for _, end in spans)
    events = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    area = sum(
        (later - now) * inside
        for (now, _), (later, _), inside in zip(
            events, events[1:], np.cumsum([change for _, change in events]), strict=False
        )
    )
    rate, stay = len(spans) / wall, np.mean([end - start for start, end in spans])
    assert area / wall == pytest.approx(rate * stay)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=12, max_size=24),
    staleness=st.integers(0, 3),
    generators=st.integers(1, 3),
    sequences=st.integers(2, 9),
    order=st.sampled_from(list(TakeOrder)),
    when_stale=st.sampled_from(list(WhenStale)),
    load=st.sampled_from([0.0, 0.7]),
    update=st.sampled_from(list(WeightUpdate)),
    failure=st.sampled_from([0.0, 200.0]),
    is_colocated=st.booleans(),
)
def test_every_token_is_trained_on_dropped_lost_or_in_flight(
    lengths: list[tuple[int, int]],
    staleness: int,
    generators: int,
    sequences: int,
    order: TakeOrder,
    when_stale: WhenStale,
    load: float,
    update: WeightUpdate,
    failure: float,
    is_colocated: bool,
) -> None:
    options = replace(
        PLAIN,
        generators=generators,
        sequences=sequences,
        step_seconds_per_sequence=0.01,
        order=order,
        load_seconds=load,
        weight_update=update,
        failure_seconds=failure,
        repair_seconds=3.0,
        is_colocated=is_colocated,
    )
    # Dropped chunks are replaced by others, whose lengths begin again.
    rounds = len(lengths) // 3
    source = Work(lambda n: lengths[n % len(lengths)], lambda _: 1, 60, 3, rounds)
    mode = virtual_mode(staleness, when_stale=when_stale)
    found = simulate(options, mode, source, seed=5)
    again = simulate(options, mode, source, seed=5)
    assert found == again, "virtual time is a function of lengths and seed"
    assert len(found.lags) == 3 * rounds and max(found.lags) <= staleness
    chunks = [row["chunk"] for row in found.rows]
    assert len(set(chunks)) == len(chunks), "no chunk is taken twice"
    if when_stale is WhenStale.wait:
        assert sorted(chunks) == list(range(3 * rounds))
    fates = Counter[str]()
    for row in found.rows:
        fates["dropped" if row["dropped"] else "trained"] += sum(
            lengths[row["chunk"] % len(lengths)]
        )
    generated, in_flight = found.tokens
    assert generated == fates["trained"] + fates["dropped"] + in_flight
    last = found.rounds[-1]
    # What is decoded and not finished yet is of chunks that are never taken.
    assert last["virtual/decoded_tokens"] >= generated - in_flight + last["virtual/lost_tokens"]
    assert last["virtual_seconds/generator_wait"] >= -1e-6


def test_lag_grows_with_length_where_rounds_take_what_is_finished_first() -> None:
    rng = np.random.default_rng(11)
    lengths = [(int(draw),) for draw in np.ceil(rng.lognormal(3.0, 0.9, 1200))]
    options = replace(PLAIN, generators=2, sequences=24, round_seconds=15.0)
    source = work(lengths, per_round=8)
    found = simulate(options, virtual_mode(4), source)
    sizes = [lengths[row["chunk"]][0] for row in found.rows]
    assert np.corrcoef(sizes, found.lags)[0, 1] > 0.3
    # A fixed order has no such correlation that long samples alone pay for.
    fixed = simulate(replace(options, order=TakeOrder.submission), virtual_mode(4), source)
    in_order = [lengths[row["chunk"]][0] for row in fixed.rows]
    assert abs(np.corrcoef(in_order, fixed.lags)[0, 1]) < 0.15


def test_dropping_keeps_the_short_ones() -> None:
    rng = np.random.default_rng(11)
    lengths = [(int(draw),) for draw in np.ceil(rng.lognormal(3.0, 0.9, 2400))]
    options = replace(PLAIN, generators=2, sequences=24, round_seconds=15.0)
    source = replace(work(lengths, per_round=8), num_rounds=100)
    mode = virtual_mode(1, when_stale=WhenStale.drop, extra_rounds=2)
    found = simulate(options, mode, source)
    dropped = [lengths[row["chunk"]][0] for row in found.rows if row["dropped"]]
    kept = [lengths[row["chunk"]][0] for row in found.rows if not row["dropped"]]
    assert len(dropped) > 50
    assert np.mean(dropped) > 1.5 * np.mean(kept)


def test_failures_cost_time_and_tokens_and_repeat_by_the_seed() -> None:
    options = replace(PLAIN, generators=2, sequences=4, failure_seconds=60.0, repair_seconds=5.0)
    source = work([(20,)] * 60, per_round=2)
    safe = simulate(replace(options, failure_seconds=0.0), virtual_mode(1), source, seed=1)
    found = simulate(options, virtual_mode(1), source, seed=1)
    last = found.rounds[-1]
    assert last["virtual/failures"] > 5 and last["virtual/lost_tokens"] > 0
    assert last["virtual_seconds/wall"] > safe.rounds[-1]["virtual_seconds/wall"]
    assert found == simulate(options, virtual_mode(1), source, seed=1)
    assert found != simulate(options, virtual_mode(1), source, seed=2)


def test_lengths_are_stretched_by_a_power_of_their_share_of_the_limit() -> None:
    assert [PLAIN.length(tokens, 20) for tokens in (1, 5, 20)] == [1, 5, 20]
    assert [replace(PLAIN, length_power=0.0).length(n, 20) for n in (1, 5, 20)] == [20, 20, 20]
    heavy = replace(PLAIN, length_power=2.0, length_scale=10.0)
    assert [heavy.length(tokens, 20) for tokens in (1, 10, 20)] == [1, 50, 200]
    assert replace(PLAIN, length_scale=3.0).written(7) == 2


def test_a_sample_of_the_run_stands_for_several_sequences() -> None:
    # Two samples that stand for four sequences each take the time of eight sequences.
    small = replace(PLAIN, sequences=8, step_seconds_per_sequence=0.1, train_tokens_per_second=8.0)
    large = simulate(small, virtual_mode(0), work([(10,) * 8] * 3, prompt=4))
    stands = replace(small, row_scale=4.0)
    found = simulate(stands, virtual_mode(0), work([(10,) * 2] * 3, prompt=4))
    assert found.rounds[-1]["virtual_seconds/wall"] == pytest.approx(
        large.rounds[-1]["virtual_seconds/wall"]
    )


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"sequences": 4, "row_scale": 5.0}, "cluster.row_scale=5"),
        ({"weight_update": WeightUpdate.in_flight, "length_power": 2.0}, "cluster.length_power=2"),
        ({"step_seconds": 0.0}, "cluster.step_seconds=0"),
    ],
)
def test_impossible_clusters_are_refused(values: dict[str, float], text: str) -> None:
    with pytest.raises(UserError, match=text):
        replace(PLAIN, **values)  # type: ignore[arg-type]


def test_new_weights_come_between_two_tokens_of_a_sequence() -> None:
    """Chunk 1 is written from second 0 on. Round 0 trains from 2 to 11.5, when version 1 comes:
    the twelfth token has begun."""
    options = replace(
        PLAIN,
        sequences=2,
        weight_update=WeightUpdate.in_flight,
        round_seconds=9.5,
        load_seconds=3.0,
    )
    lengths = [(2,), (20,), (4,)]
    found = simulate(options, virtual_mode(1), work(lengths))
    segments = {row["chunk"]: row["segments"] for row in found.rows}
    # Twelve tokens, three seconds to load, eight tokens more.
    assert segments == {0: [[0, 0]], 1: [[0, 0], [12, 1]], 2: [[0, 1]]}
    assert taken(found)[1][2:] == (0, 23, 23)
    drained = simulate(
        replace(options, weight_update=WeightUpdate.drain), virtual_mode(1), work(lengths)
    )
    assert {row["chunk"]: row["segments"] for row in drained.rows}[1] == [[0, 0]]


def test_an_interrupted_sequence_is_read_anew() -> None:
    options = replace(
        PLAIN,
        sequences=2,
        weight_update=WeightUpdate.interrupt,
        round_seconds=9.5,
        prefill_tokens_per_second=4.0,
    )
    found = simulate(options, virtual_mode(1), work([(2,), (20,), (4,)], prompt=4))
    # Two prompts are read in 2 seconds, round 0 trains from 4 to 13.5, in chunk 1's twelfth token.
    # It is read with its prompt in 4 seconds, then chunk 2's prompt in one; 8 tokens are left.
    assert taken(found)[1] == (1, 0, 0, 27, 27)
    assert taken(found)[0] == (0, 0, 0, 4, 4)


def test_colocated_generators_pause_while_the_trainer_trains() -> None:
    options = replace(PLAIN, sequences=2, is_colocated=True, weight_update=WeightUpdate.interrupt)
    found = simulate(options, virtual_mode(1), work([(2,), (20,), (4,)]))
    # Two tokens before the pause of ten seconds, eighteen after it.
    assert taken(found)[1] == (1, 0, 0, 30, 30)
    assert [row["virtual_seconds_pauses"] for row in found.rows[:2]] == [
        [],
        [[pytest.approx(2), pytest.approx(12)]],
    ]
    apart = simulate(replace(options, is_colocated=False), virtual_mode(1), work([(2,), (20,)]))
    assert not any("virtual_seconds_pauses" in row for row in apart.rows)
