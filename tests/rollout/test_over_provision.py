"""Over-provision (APRIL): which groups a round ends with, and how the others go on."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.rollout.background import ThreadExecutor
from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.chunk_states import RoundRollouts
from rlhf_lab.rollout.executor import Executor, InlineExecutor
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.rollout.group_queue import GroupQueue
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.open_groups import RecyclingRule
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.training.checkpoint_files import from_queue_row, queue_row
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import Finished, MakeConfig

pytestmark = pytest.mark.usefixtures("costly")

TINY = ScratchModel("tiny", hidden_size=32, num_layers=2, num_heads=4)
ROW = Example("row", "a", "b")
LIMIT = 12
# Answers of up to eight tokens, which the sampled ones mostly are.
SHORT = ("task=arithmetic", "algo=rloo", "reward=task_rule", "run.updates=4", "eval=none")
RECYCLING = ("mode=partial", "mode.segment_tokens=2", "mode.over_provision=1.5")

Lengths = Sequence[tuple[int, ...]]


class Writer(Generator, Reward):
    """Writes samples whose lengths follow from the prompt's number, one token a step; the reward is
    the length."""

    def __init__(self, lengths: Lengths) -> None:
        self._lengths = lengths
        self.judged: list[int] = []
        self.written = 0

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        open_ = {len(s.tokens) for s in chunk.samples if s.finish is Finish.unfinished}
        # A generator continues all samples of a chunk in step.
        assert len(open_) == 1
        version = feed.at(open_.pop()).version
        wanted = [length for prompt in chunk.prompts for length in self._lengths[prompt.id]]
        pairs = zip(chunk.samples, wanted, strict=True)
        return chunk.grouped([self._longer(*pair, chunk.stop(10**6), version) for pair in pairs])

    def _longer(self, begun: Sample, length: int, stop: int, version: int) -> Sample:
        if begun.finish is not Finish.unfinished:
            return begun
        new = min(stop, length) - len(begun.tokens)
        self.written += new
        finish = Finish.eos if length <= stop else Finish.unfinished
        return begun.continued((1,) * new, (-1.0,) * new, (version,) * new, finish, "")

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        assert all(group.is_finished for group in groups)
        self.judged += [group.prompt.id for group in groups]
        return [tuple(float(len(s.tokens)) for s in g.samples) for g in groups]


def chunk_maker(per_chunk: int, group_size: int) -> Callable[[int], Chunk]:
    def make(number: int) -> Chunk:
        ids = range(per_chunk * number, per_chunk * number + per_chunk)
        prompts = tuple(Prompt(n, tuple(range(5, 8 + n % 5)), ROW) for n in ids)
        return Chunk(number, 0, prompts, group_size)

    return make


@contextmanager
def pipeline(
    executor: Executor, rule: RecyclingRule, group_size: int, tokens: int, per_chunk: int = 2
) -> Iterator[Pipeline]:
    mode = Mode("partial", rule.max_staleness, segment_tokens=tokens)
    runner = ChunkRunner(executor, chunk_maker(rule.groups, group_size), mode)
    with Pipeline(runner, GroupQueue(runner, rule, per_chunk, mode)) as pipe:
        yield pipe


def inline(writer: Writer) -> Executor:
    return InlineExecutor(lambda: RolloutWorker(writer, writer, is_model=True))


@dataclass(frozen=True)
class MeasuredRound(RoundRollouts):
    """A round with what its queue counted."""

    metrics: Metrics = field(default_factory=dict)


def taken(writer: Writer, rule: RecyclingRule, tokens: int) -> Iterator[MeasuredRound]:
    """All rounds; after each, every token is accounted for."""
    ledger, group_size = Ledger(1, 0, 100), len(writer._lengths[0])
    with pipeline(inline(writer), rule, group_size, tokens) as pipe:
        for version in range(rule.total // rule.groups):
            found = pipe.take(Weights(version, {}))
            pipe.fill(Weights(version + 1, {}))
            for rollout in found.generated:
                ledger.count_rollout(rollout)
            generated, in_flight = pipe.tokens()
            ledger.count(kept_tokens=sum(rollout.response_tokens for rollout in found.rollouts))
            ledger.check_tokens(generated, in_flight)
            yield MeasuredRound(**vars(found), metrics=pipe.measures())
        assert pipe.tokens() == (writer.written, 0)


def ids(found: RoundRollouts) -> list[int]:
    return [group.prompt.id for group in found.groups]


def versions(group: Group) -> list[tuple[int, ...]]:
    return [s.versions or (s.version,) * len(s.tokens) for s in group.samples]


THREE = ((3, 1), (7, 2), (2, 2), (1, 1), (4, 1), (5, 5))


def test_three_groups_for_rounds_of_two_by_hand() -> None:
    writer = Writer(THREE)
    rule = RecyclingRule.of(2, 3, over_provision=1.5, max_staleness=1)
    assert (rule.in_flight, rule.total) == (3, 6)
    first, second, third = taken(writer, rule, tokens=2)
    # Version 0 begins groups 0 to 2. After 2 tokens group 2 is complete, after 4 group 0 is, too:
    # the round ends, and group 1 has 4 of its 7 tokens.
    assert ids(first) == [0, 2]
    assert first.metrics == {
        "recycled/groups": 0,
        "recycled/groups_due": 0,
        "recycled/groups_left": 1,
        "recycled/groups_ahead": 0,
        "recycled/tokens": 0,
        "recycled/share": 0.0,
        "recycled/steps": 4,
        # Six samples, four steps: they got 3 + 1, 4 + 2 and 2 + 2 tokens.
        "recycled/idle": 1 - 14 / 24,
        "recycled/length_left": 3.0,
    }
    # Group 1 is due, and gets its last 3 tokens from version 1. Groups 3 and 4 are complete by
    # then; group 3 needed fewer steps.
    assert ids(second) == [1, 3]
    assert versions(second.groups[0]) == [(0, 0, 0, 0, 1, 1, 1), (0, 0)]
    assert second.metrics["recycled/groups_due"] == 1
    assert second.metrics["recycled/groups_ahead"] == 1
    assert second.metrics["recycled/tokens"] == 6
    assert second.metrics["recycled/share"] == 6 / 11
    assert second.metrics["recycled/steps"] == 4
    # Group 4 was complete; only group 5 is left to begin.
    assert ids(third) == [4, 5]
    assert [versions(group)[0] for group in third.groups] == [(1,) * 4, (2,) * 5]
    assert third.metrics["recycled/steps"] == 5
    assert "recycled/length_left" not in third.metrics
    assert sorted(writer.judged) == list(range(6))
    assert [row["segments"] for row in second.schedule] == [[[0, 0], [4, 1]], [[0, 1]]]
    assert [(row["chunk"], row["place"]) for row in second.schedule] == [(0, 1), (1, 1)]


def test_of_groups_that_end_at_the_same_step_the_earlier_prompts_are_first() -> None:
    rule = RecyclingRule.of(2, 2, over_provision=2.0, max_staleness=1)
    first, second = taken(Writer(((3,), (2,), (3,), (3,))), rule, tokens=4)
    assert ids(first) == [0, 1]
    assert ids(second) == [2, 3]
    assert second.metrics["recycled/steps"] == 0
    assert second.metrics["recycled/idle"] == 0


LENGTHS = st.lists(st.tuples(*[st.integers(1, 30)] * 2), min_size=12, max_size=12)


@given(LENGTHS, st.sampled_from([1.25, 1.5, 2.0]), st.integers(1, 3), st.integers(1, 9))
def test_every_prompt_is_trained_on_once_within_the_bound(
    lengths: Lengths, factor: float, staleness: int, tokens: int
) -> None:
    writer = Writer(lengths)
    rule = RecyclingRule.of(3, 4, factor, staleness)
    rounds = list(taken(writer, rule, tokens))
    assert [len(found.groups) for found in rounds] == [3] * 4
    assert all(ids(found) == sorted(ids(found)) for found in rounds)
    assert sorted(n for found in rounds for n in ids(found)) == list(range(12))
    assert sorted(writer.judged) == list(range(12))
    for round_, found in enumerate(rounds):
        for group in found.groups:
            assert [len(s.tokens) for s in group.samples] == list(lengths[group.prompt.id])
            assert group.rewards == lengths[group.prompt.id]
            for wrote in versions(group):
                assert list(wrote) == sorted(wrote)
                assert round_ - staleness <= wrote[0] <= wrote[-1] <= round_
        assert 0 <= found.metrics["recycled/idle"] < 1
    # A segment is a position at which a round may end: no more is written than up to there.
    assert writer.written == sum(map(sum, lengths))


@given(LENGTHS, st.integers(1, 9))
def test_the_length_of_segments_does_not_choose_the_groups_of_the_first_round(
    lengths: Lengths, tokens: int
) -> None:
    rule = RecyclingRule.of(3, 4, 2.0, 2)
    first = next(taken(Writer(lengths), rule, tokens))
    steps = sorted((max(lengths[number]), number) for number in range(6))
    assert ids(first) == sorted(number for _, number in steps[:3])


# One group of the eight of a round is five times as long as the others.
TAIL = tuple((20,) if number % 8 == 3 else (4,) for number in range(8 * 16))


@pytest.mark.parametrize(
    ("factor", "staleness", "expected"),
    [
        *((1.25, 1, 164), (1.25, 3, 120), (1.25, 7, 120)),
        *((1.5, 1, 160), (1.5, 3, 88), (1.5, 7, 80)),
        *((2.0, 1, 160), (2.0, 3, 88), (2.0, 7, 76)),
    ],
)
def test_rounds_of_a_heavy_tail_need_fewer_decode_steps(
    factor: float, staleness: int, expected: int
) -> None:
    rule = RecyclingRule.of(8, 16, factor, staleness)
    steps = [found.metrics["recycled/steps"] for found in taken(Writer(TAIL), rule, tokens=4)]
    # A round that waits for all of its groups needs 20 steps: 320 in sixteen.
    assert sum(steps) == expected
    # The last round has what is left: nothing is begun that no round would train on.
    assert steps[-1] >= 16


def test_a_long_group_is_waited_for_once_in_as_many_rounds_as_it_may_be_old() -> None:
    rule = RecyclingRule.of(8, 16, over_provision=1.5, max_staleness=3)
    rounds = list(taken(Writer(TAIL), rule, tokens=4))
    steps = [found.metrics["recycled/steps"] for found in rounds]
    assert steps == [4, 4, 4, 8] * 3 + [4, 4, 4, 16]
    assert [found.metrics["recycled/idle"] for found in rounds[:3]] == [0, 0, 0]


def test_short_groups_are_trained_on_first_and_none_is_left_out() -> None:
    rule = RecyclingRule.of(8, 16, over_provision=1.5, max_staleness=7)
    means = [
        sum(len(s.tokens) for g in found.groups for s in g.samples) / 8
        for found in taken(Writer(TAIL), rule, tokens=4)
    ]
    of_all = sum(map(sum, TAIL)) / len(TAIL)
    # The bias is one of time: early rounds are shorter than what they began, the last one longer.
    assert means[0] == 4 < of_all == 6 < means[-1] == 12
    assert sum(means) / 16 == pytest.approx(of_all)


def test_a_group_at_the_bound_delays_the_end_of_its_last_round() -> None:
    lengths = ((20,), *((1,) for _ in range(5)))
    rule = RecyclingRule.of(2, 3, over_provision=1.5, max_staleness=1)
    rounds = list(taken(Writer(lengths), rule, tokens=4))
    assert [ids(found) for found in rounds] == [[1, 2], [0, 3], [4, 5]]
    assert [found.metrics["recycled/steps"] for found in rounds] == [4, 16, 1]


def test_a_writer_that_fails_in_a_later_segment_stops_the_run() -> None:
    class Breaking(Writer):
        def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
            if chunk.begun:
                raise OSError("broke when it went on")
            return super().generate(feed, chunk)

    rule = RecyclingRule.of(2, 3, 1.5, 1)
    with pytest.raises(OSError, match="broke when it went on"):
        list(taken(Breaking(THREE), rule, tokens=2))


# With a real model.

ROUNDS = 5
RULE = RecyclingRule.of(4, ROUNDS, over_provision=1.5, max_staleness=2)


@functools.cache
def weights(version: int) -> Weights:
    """Versions that differ."""
    model, _ = load_policy(TINY, TldrNano().tokenizer(), seed=3)
    state = {name: (1 + 0.1 * version) * p.detach() for name, p in model.named_parameters()}
    return Weights(version, state)


class Counting(Reward):
    """The reward is the length."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [tuple(float(len(s.tokens)) for s in g.samples) for g in groups]


def real_worker(kind: type[HFGenerator] = HFGenerator) -> RolloutWorker:
    tokenizer = TldrNano().tokenizer()
    model, _ = load_policy(TINY, tokenizer, seed=9)
    sampling = HFSampling(temperature=2.0)
    made = kind(model, tokenizer, sampling, LIMIT, functools.partial(uniforms, 5))
    return RolloutWorker(made, Counting(), is_model=False)


def results(executor: Executor) -> list[Any]:
    with pipeline(executor, RULE, group_size=2, tokens=3, per_chunk=3) as pipe:
        return [outcome(pipe, version) for version in range(ROUNDS)]


def outcome(pipe: Pipeline, version: int) -> Any:
    found = pipe.take(weights(version))
    return found.groups, found.schedule, pipe.measures()


@functools.cache
def alone() -> list[Any]:
    return results(InlineExecutor(real_worker))


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (3, 2), (1, 64)])
def test_threads_write_what_the_trainer_writes_by_itself(workers: int, prefetch: int) -> None:
    assert any(metrics["recycled/tokens"] for _, _, metrics in alone())
    assert results(ThreadExecutor([real_worker] * workers, prefetch)) == alone()


@pytest.mark.parametrize("stop", range(1, ROUNDS))
def test_a_checkpoint_holds_what_is_written_and_goes_on_with_the_same_bits(stop: int) -> None:
    with pipeline(InlineExecutor(real_worker), RULE, 2, tokens=3, per_chunk=3) as pipe:
        found = [outcome(pipe, version) for version in range(stop)]
        pipe.fill(weights(stop))
        counters, queue = pipe.state()
        rows = json.dumps([counters, [queue_row(one) for one in queue]])
        in_flight = pipe.tokens()[1]
    assert in_flight > 0
    counters, queue_rows = json.loads(rows)
    make = chunk_maker(RULE.groups, 2)
    again = [from_queue_row(row, make) for row in queue_rows]
    with pipeline(InlineExecutor(real_worker), RULE, 2, tokens=3, per_chunk=3) as pipe:
        pipe.restore(counters, again, {stop: weights(stop)})
        assert pipe.tokens()[1] == in_flight
        found += [outcome(pipe, version) for version in range(stop, ROUNDS)]
    assert found == alone()


def test_a_round_that_was_interrupted_begins_anew() -> None:
    calls = 0

    class Breaking(HFGenerator):
        def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
            nonlocal calls
            calls += 1
            # Round 2, not in its first segment.
            if chunk.round == 2 and chunk.begun and calls > 14:
                raise OSError("killed")
            return super().generate(feed, chunk)

    found = []
    with pipeline(InlineExecutor(lambda: real_worker(Breaking)), RULE, 2, 3, 3) as pipe:
        found += [outcome(pipe, version) for version in range(2)]
        before = pipe.tokens()
        with pytest.raises(OSError, match="killed"):
            pipe.take(weights(2))
        counters, queue = pipe.state()
        assert pipe.tokens() == before
    with pipeline(InlineExecutor(real_worker), RULE, 2, tokens=3, per_chunk=3) as pipe:
        pipe.restore(counters, queue, {2: weights(2)})
        found += [outcome(pipe, version) for version in range(2, ROUNDS)]
    assert found == alone()


# Whole runs.


def test_tokens_of_recycled_groups_are_accounted_for(finished: Finished) -> None:
    options = (*SHORT, *RECYCLING, "generator.chunk_groups=3", "tracker.probe_groups=2")
    rows = finished(*options, "mode.executor=inline")[0]
    assert sum(row["recycled/tokens"] for row in rows) > 0
    for round_, row in enumerate(rows):
        assert 0 <= row["lag/rounds_min"] <= row["lag/rounds_max"] <= min(1, round_)
        # Each token is read again with the weights that wrote it.
        assert row["gap/mismatch_k3"] == pytest.approx(0, abs=1e-9)
    last = rows[-1]
    assert last["total/generated_tokens"] == last["total/kept_tokens"] + last["total/tied_tokens"]


@pytest.mark.parametrize(
    "algo",
    [("algo=remax",), ("algo=dapo", "run.group_size=4"), ("algo=ppo", "run.group_size=1")],
    ids=["with a greedy sample", "with groups that are left out", "without groups"],
)
def test_every_prompt_of_a_run_is_trained_on_once(
    finished: Finished, algo: tuple[str, ...]
) -> None:
    rows = finished(*SHORT, *algo, *RECYCLING, "mode.executor=inline")[0]
    totals = rows[-1]
    per_round = totals["total/prompts"] / len(rows)
    assert [row["total/prompts"] for row in rows] == [per_round * (n + 1) for n in range(len(rows))]
    assert rows[-1]["recycled/groups_left"] == 0 < rows[0]["recycled/groups_left"]
    fates = ("kept", "tied", "left_out", "unscored", "dropped")
    found = sum(totals.get(f"total/{fate}_tokens", 0) for fate in fates)
    assert totals["total/generated_tokens"] == found


TURNS = (
    *("task=ask_nano", "algo=grpo", "run.group_size=4", "run.updates=4", "eval=none"),
    *("mode=partial_turns", "mode.over_provision=1.5", "generator.chunk_groups=3"),
)
WITHIN_TURNS = (*TURNS, "mode=partial", "mode.segment_tokens=5")


@pytest.mark.parametrize("options", [TURNS, WITHIN_TURNS], ids=["turns", "tokens"])
def test_episodes_go_on_in_later_rounds(finished: Finished, options: tuple[str, ...]) -> None:
    rows = finished(*options, "mode.executor=inline")[0]
    assert sum(row["recycled/tokens"] for row in rows) > 0
    assert any(row["episode/lag_first_turn"] > row["episode/lag_last_turn"] for row in rows)
    for round_, row in enumerate(rows):
        assert 0 <= row["lag/rounds_min"] <= row["lag/rounds_max"] <= min(1, round_)
        assert row["gap/mismatch_k3"] == pytest.approx(0, abs=1e-9)
        assert 0 <= row["recycled/idle"] < 1
    last = rows[-1]
    assert last["recycled/groups_left"] == 0
    assert last["total/generated_tokens"] == last["total/kept_tokens"] + last["total/tied_tokens"]


def test_without_over_provision_it_is_a_partial_run(finished: Finished) -> None:
    options = (*SHORT, "mode=partial", "mode.executor=inline", "mode.segment_tokens=2")
    assert finished(*options, "mode.over_provision=1") == finished(*options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("mode=async", "mode.over_provision=1.5"), "mode.segment_tokens=0.*mode=partial"),
        ((*TURNS, "mode.segment_turns=0"), "mode.segment_tokens=0.*mode=partial_turns"),
        (("mode=partial", "mode.over_provision=2.5"), "mode.over_provision=2.5.*1 to 2"),
        (("mode=partial", "mode.over_provision=0.5"), "mode.over_provision=0.5.*1 to 2"),
        (
            ("mode=recorded", "mode.schedule=x", "mode.over_provision=1.5"),
            "mode.over_provision=1.5",
        ),
        ((*SHORT, *RECYCLING, "run.prompts=pool"), "run.prompts=pool with mode.over_provision=1.5"),
    ],
)
def test_what_does_not_fit_is_refused(
    make_config: MakeConfig, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(make_config(*options))
