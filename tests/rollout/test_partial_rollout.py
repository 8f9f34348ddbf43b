"""Partial rollouts: which version writes which token, in every executor and after every stop."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from rlhf_lab.experiment.planning.settings import settings_of
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.batching import collate
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.forward import response_output
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.background import ThreadExecutor
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_states import QueuedChunk, RoundRollouts
from rlhf_lab.rollout.executor import Executor, InlineExecutor
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.rollout.mode import ExecutorKind, Mode
from rlhf_lab.rollout.partial_rollout import segments_of
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.rollout.recorded_schedule import read_schedule
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS
from tests.support.pipelines import chunk_pipeline

# Answers of up to eight tokens, which the sampled ones mostly are.
SHORT = ("task=arithmetic", "algo=rloo", "reward=task_rule", "run.updates=4", "eval=none")
TINY = ScratchModel("tiny", hidden_size=32, num_layers=2, num_heads=4)
ROUNDS = 5
LIMIT = 10


class Lengths(Generator, Reward):
    """Writes samples of given lengths, as far as it is asked to; the reward is the length."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self._lengths = lengths
        self.asked: list[tuple[int, int, int]] = []

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        begun = chunk.begun or tuple(
            Sample((), (), 0, Finish.unfinished, "") for _ in self._lengths
        )
        start = max(len(s.tokens) for s in begun if s.finish is Finish.unfinished)
        version = feed.at(start).version
        self.asked.append((chunk.round, version, chunk.stop_at))
        samples = tuple(
            self._longer(sample, length, min(chunk.stop_at or LIMIT, LIMIT), version)
            for sample, length in zip(begun, self._lengths, strict=True)
        )
        return (Group(chunk.prompts[0], samples),)

    def _longer(self, begun: Sample, length: int, stop: int, version: int) -> Sample:
        new = min(stop, length) - len(begun.tokens)
        if begun.finish is not Finish.unfinished or new <= 0:
            return begun
        wrote = (begun.versions or (begun.version,) * len(begun.tokens)) + (version,) * new
        size = len(begun.tokens) + new
        finish = Finish.eos if size == length else Finish.unfinished
        if finish is Finish.unfinished and size == LIMIT:
            finish = Finish.length
        versions = wrote if wrote[0] != wrote[-1] else ()
        return Sample((1,) * size, (-1.0,) * size, wrote[0], finish, "", versions)

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        assert all(s.finish is not Finish.unfinished for g in groups for s in g.samples)
        return [tuple(float(len(s.tokens)) for s in g.samples) for g in groups]


def one_prompt(number: int) -> Chunk:
    """A round of one chunk of one prompt of three tokens, with three samples."""
    return Chunk(number, 0, (Prompt(number, (7, 8, 9), Example("row", "a", "b")),), 3)


def pipeline(writer: Lengths, staleness: int, tokens: int) -> Pipeline:
    mode = Mode("lagged", staleness, segment_tokens=tokens)
    executor = InlineExecutor(lambda: RolloutWorker(writer, writer, is_model=True))
    budget = StalenessBudget(staleness, 1, ROUNDS)
    return chunk_pipeline(executor, budget, one_prompt, 1, mode)


def rounds(pipe: Pipeline) -> Iterator[RoundRollouts]:
    with pipe:
        for version in range(ROUNDS):
            yield pipe.take(Weights(version, {}))


def test_the_version_of_a_token_follows_from_its_position() -> None:
    writer = Lengths((3, 6, 20))
    found = [
        [s.versions or (s.version,) * len(s.tokens) for s in taken.groups[0].samples]
        for taken in rounds(pipeline(writer, 1, 4))
    ]
    # Rounds 0 and 1 begin with version 0, which is round 0's own: it writes all ten tokens.
    assert found[0] == [(0,) * 3, (0,) * 6, (0,) * 10]
    assert found[1] == [(0,) * 3, (0, 0, 0, 0, 1, 1), (0, 0, 0, 0, 1, 1, 1, 1, 1, 1)]
    assert found[4] == [(3,) * 3, (3, 3, 3, 3, 4, 4), (3, 3, 3, 3, 4, 4, 4, 4, 4, 4)]


def test_two_rounds_of_staleness_make_three_segments() -> None:
    writer = Lengths((3, 6, 20))
    taken = list(rounds(pipeline(writer, 2, 4)))
    versions = [
        [s.versions or (s.version,) * len(s.tokens) for s in t.groups[0].samples] for t in taken
    ]
    assert versions[1][2] == (0, 0, 0, 0, 1, 1, 1, 1, 1, 1)
    assert versions[3] == [(1,) * 3, (1, 1, 1, 1, 2, 2), (1, 1, 1, 1, 2, 2, 2, 2, 3, 3)]
    assert [t.schedule[0]["segments"] for t in taken] == [
        [[0, 0]],
        [[0, 0], [4, 1]],
        [[0, 0], [4, 1], [8, 2]],
        [[0, 1], [4, 2], [8, 3]],
        [[0, 2], [4, 3], [8, 4]],
    ]
    # Round 3 was begun with version 1, which stopped after 4 tokens; its own writes to the end.
    assert [row[1:] for row in writer.asked if row[0] == 3] == [(1, 4), (2, 8), (3, 0)]


def test_a_chunk_that_ends_early_asks_no_later_version() -> None:
    writer = Lengths((3, 4, 2))
    taken = list(rounds(pipeline(writer, 2, 4)))
    assert len(writer.asked) == ROUNDS
    assert [t.schedule[0]["segments"] for t in taken][4] == [[0, 2]]


def test_every_token_is_counted_once_and_a_continued_text_is_read_again() -> None:
    writer = Lengths((3, 6, 20))
    pipe = pipeline(writer, 2, 4)
    taken = list(rounds(pipe))
    tokens = taken[3].rollouts[0].tokens
    # The prompt once for all three; then two samples of 3 + 4 tokens, then one of 3 + 8.
    assert tokens["prefill_tokens"] == 3 + 2 * 7 + 11
    assert tokens["generated_tokens"] == 3 + 6 + 10
    assert tokens["scored_tokens"] == 3 * 3 + 19
    assert pipe.tokens() == (19 * ROUNDS, 0)


def test_the_timeline_says_which_version_wrote_when() -> None:
    ledger = Ledger(1, 0, 100)
    for taken in rounds(pipeline(Lengths((20, 1, 1)), 2, 4)):
        ledger.count_rollout(taken.rollouts[0])
    events = [e for e in ledger.drain() if e["round"] == 3]
    assert [(e["phase"], e["version"], e["lane"]) for e in events] == [
        ("generate", 1, "trainer"),
        ("generate", 2, "trainer"),
        ("generate", 3, "trainer"),
        ("score", 3, "trainer"),
    ]


def test_the_closed_form() -> None:
    assert segments_of(5, 3, 4, 3) == [(0, 3), (4, 4), (8, 5)]
    assert segments_of(5, 3, 4, 1) == [(0, 3)]


def test_a_writer_that_fails_in_a_later_segment_stops_the_run() -> None:
    class Breaking(Lengths):
        def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
            if chunk.begun:
                raise OSError("broke when it went on")
            return super().generate(feed, chunk)

    with pytest.raises(OSError, match="broke when it went on"):
        list(rounds(pipeline(Breaking((20, 20, 20)), 1, 4)))


# With a real model.


def weights(version: int) -> Weights:
    """Versions that differ."""
    model, _ = load_policy(TINY, TldrNano().tokenizer(), seed=3)
    state = {name: (1 + 0.1 * version) * p.detach() for name, p in model.named_parameters()}
    return Weights(version, state)


def prompts(number: int) -> Chunk:
    """Two chunks a round, of four prompts of 3 to 7 tokens with two samples each."""
    ids = range(4 * number, 4 * number + 4)
    made = tuple(Prompt(n, tuple(range(5, 8 + n % 5)), ROW) for n in ids)
    return Chunk(number // 2, number % 2, made, 2)


ROW = Example("row", "a", "b")


class Counting(Reward):
    """The reward is the length."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [tuple(float(len(s.tokens)) for s in g.samples) for g in groups]


def real_worker() -> RolloutWorker:
    tokenizer = TldrNano().tokenizer()
    model, _ = load_policy(TINY, tokenizer, seed=9)
    sampling = HFSampling(temperature=2.0)
    made = HFGenerator(model, tokenizer, sampling, 12, functools.partial(uniforms, 5))
    return RolloutWorker(made, Counting(), is_model=False)


@contextmanager
def real(executor: Executor, mode: Mode) -> Iterator[Pipeline]:
    budget = StalenessBudget(mode.max_staleness, 2, ROUNDS)
    with chunk_pipeline(executor, budget, prompts, 2, mode) as pipe:
        yield pipe


def groups_of(executor: Executor, tokens: int, kind: ExecutorKind) -> list[Group]:
    mode = Mode("partial", 2, kind, segment_tokens=tokens)
    with real(executor, mode) as pipe:
        return [g for v in range(ROUNDS) for g in pipe.take(weights(v)).groups]


def test_log_probs_are_those_of_each_tokens_own_version() -> None:
    groups = groups_of(InlineExecutor(real_worker), 3, ExecutorKind.inline)
    model, tokenizer = load_policy(TINY, TldrNano().tokenizer(), seed=9)
    batch = collate(groups, tokenizer.pad_token_id)
    samples = [s for g in groups for s in g.samples]
    assert {len(set(s.versions)) for s in samples} >= {0, 2, 3}
    seen = 0
    for version in range(ROUNDS):
        load_weights(model, weights(version))
        with torch.inference_mode():
            logp_BT = response_output(model, batch, 2.0).logp_BT
        for row, sample in enumerate(samples):
            wrote = sample.versions or (sample.version,) * len(sample.tokens)
            for place, (by, logp) in enumerate(zip(wrote, sample.logps, strict=True)):
                if by == version:
                    assert logp == pytest.approx(float(logp_BT[row, place]), abs=2e-5)
                    seen += 1
    assert seen == sum(len(s.tokens) for s in samples)


def test_threads_write_what_the_trainer_writes_by_itself() -> None:
    alone = groups_of(InlineExecutor(real_worker), 3, ExecutorKind.inline)
    for workers, prefetch in ((1, 1), (3, 2), (1, 64)):
        executor = ThreadExecutor([real_worker] * workers, prefetch)
        assert groups_of(executor, 3, ExecutorKind.thread) == alone


def test_a_queue_of_unfinished_chunks_is_written_anew_with_the_same_bits() -> None:
    whole = groups_of(InlineExecutor(real_worker), 3, ExecutorKind.inline)
    mode = Mode("partial", 2, segment_tokens=3)
    with real(InlineExecutor(real_worker), mode) as pipe:
        found = [g for v in range(2) for g in pipe.take(weights(v)).groups]
        pipe.fill(weights(2))
        counters, queue = pipe.state()
        kept = pipe.history()
    kinds = {(q.number // 2, q.rollout is None) for q in queue if isinstance(q, QueuedChunk)}
    assert kinds == {(2, False), (3, True), (4, True)}
    assert set(kept) == {0, 1, 2}
    with real(InlineExecutor(real_worker), mode) as pipe:
        pipe.restore(counters, queue, kept)
        found += [g for v in range(2, ROUNDS) for g in pipe.take(weights(v)).groups]
        assert pipe.tokens() == (sum(len(s.tokens) for g in found for s in g.samples), 0)
    assert found == whole


# Whole runs.


@pytest.mark.parametrize("staleness", [1, 2])
def test_tokens_of_segments_are_read_by_the_weights_that_wrote_them(
    finished: Finished, staleness: int
) -> None:
    options = (
        *SHORT,
        "mode=partial",
        f"mode.max_staleness={staleness}",
        "mode.segment_tokens=2",
        "generator.chunk_groups=3",
        "tracker.probe_groups=2",
    )
    rows = finished(*options, "mode.executor=inline")[0]
    assert any(row["sample/continued"] > 0 for row in rows)
    assert rows[0]["sample/continued"] == 0
    for round_, row in enumerate(rows):
        assert row["lag/rounds_max"] == min(staleness, round_)
        # Each token is read again with the weights that wrote it.
        assert row["gap/mismatch_k3"] == pytest.approx(0, abs=1e-9)


def test_segments_as_long_as_the_limit_are_a_lagged_run(finished: Finished) -> None:
    lagged = finished(*SHORT, "mode=lagged")
    assert finished(*SHORT, "mode=lagged", "mode.segment_tokens=8") == lagged
    assert finished(*SHORT, "mode=lagged", "mode.segment_tokens=2") != lagged


def test_partial_runs_are_neither_replayed_nor_planned_from(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "partial"
    two = ("run.updates=2", "mode.segment_tokens=2")
    partial = make_config(*SHORT, "mode=lagged", *two, f"output.dir={folder}")
    lifecycle.train(partial, Console(quiet=True), FACTS)
    assert {row["segment_tokens"] for row in read_rows(folder / "schedule.jsonl")} == {2}
    replay = make_config(*SHORT, "run.updates=2", "mode=recorded", f"mode.schedule={folder}")
    with pytest.raises(UserError, match="repeats it bit for bit"):
        read_schedule(folder, replay.mode, replay.run, replay.generator)
    with pytest.raises(UserError, match="mode=async"):
        settings_of(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("mode=sync", "mode.segment_tokens=4"), "mode.max_staleness=0.*mode=partial"),
        (("mode=lagged", "mode.segment_tokens=-1"), "choose 1 to 10000000, or 0"),
        (("mode=free", "mode.segment_tokens=4"), "mode.weights=latest"),
        (
            ("mode=partial", "mode.executor=inline", 'mode.lag_probabilities="0.5,0.5"'),
            "lag_probabilities",
        ),
        (("mode=partial", "generator=pairs", "algo=dpo"), "generator=pairs.*generator=hf"),
    ],
)
def test_what_does_not_fit_is_refused(
    make_config: MakeConfig, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check(make_config(*options))
