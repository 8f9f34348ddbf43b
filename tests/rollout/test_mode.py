"""The contracts of the modes: exact lag, the same prompts, errors that stop a run. That executors
change no bit is in test_equal_bits.py."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlhf_lab.experiment.build import rollout as build_rollout
from rlhf_lab.experiment.build.policy import Sources
from rlhf_lab.experiment.build.rollout import build_pipeline
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rollout.background import ThreadExecutor
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.executor import InlineExecutor
from rlhf_lab.rollout.mode import ExecutorKind, Mode
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS
from tests.support.in_memory import run_in_memory
from tests.support.pipelines import chunk_pipeline
from tests.support.survival import outcome
from tests.support.variants import tuples

SHORT = ("run.updates=6", "eval=none", "eval.snapshots=0", "sft.steps=4")


def test_a_drawn_lag_is_logged_by_its_age(finished: Finished) -> None:
    drawn = (
        *(*SHORT, "run.updates=12", "generator.chunk_groups=1", "mode.max_staleness=2"),
        'mode.lag_probabilities="0.5,0.25,0.25"',
    )
    rows, _ = finished("mode=lagged", *drawn)
    lags: Counter[str] = Counter()
    for row in rows[2:]:
        lags.update(row.get("lag/rounds_histogram", {}))
    assert set(lags) == {"0", "1", "2"}
    assert lags["0"] > lags["1"] and lags["0"] > lags["2"]
    # Where a round's samples differ in age, every off-policy measure is logged by age too.
    mixed = next(row for row in rows if len(row.get("by_lag/ratio/ess", {})) == 3)
    assert mixed["by_lag/kl/behavior_policy_k3"]["0"] == pytest.approx(0, abs=1e-9)
    assert mixed["by_lag/kl/behavior_policy_k3"]["2"] > 1e-7


def test_every_measure_by_lag_counts_updates(finished: Finished) -> None:
    """At N = 2 and S = 1 rows are 0 to 3 updates old, and 0 or 2 before a round's first update."""
    options = ("run.updates_per_round=2", "mode.max_staleness=1", "tracker.probe_groups=2")
    rows, _ = finished("mode=lagged", *SHORT, *options)
    keys: dict[bool, set[str]] = {False: set(), True: set()}
    for row in rows:
        ages = {*row["lag/updates_histogram"]}
        for name, by_lag in row.items():
            if name.startswith("by_lag/"):
                keys[name.startswith("by_lag/gap/")].update(by_lag)
                assert {*by_lag} <= ages, name
    assert keys == {False: {"0", "1", "2", "3"}, True: {"0", "2"}}


def test_a_run_in_memory_is_the_run_in_a_folder(
    make_config: MakeConfig, finished: Finished
) -> None:
    """The other tests here train without a folder: the loop is the same, and so are its rows."""
    options = (*SHORT, "mode=lagged", "mode.max_staleness=2")
    folder = lifecycle.train(make_config(*options), Console(quiet=True), FACTS)
    assert outcome(folder) == finished(*options)


def test_staleness_changes_the_result(finished: Finished) -> None:
    assert finished(*SHORT) != finished("mode=lagged", *SHORT)


def test_the_same_seed_repeats_and_another_does_not(
    make_config: MakeConfig, finished: Finished
) -> None:
    # Without a proxy, which another seed would train anew.
    options = (*SHORT, "reward=task_rule")
    first = finished(*options)
    assert run_in_memory(make_config(*options)) == first
    assert finished(*options, "seed=2")[1] != first[1]


@pytest.mark.parametrize(
    ("updates_per_round", "passes", "staleness"),
    tuples(
        ((n, t, s) for n, t in ((1, 1), (4, 1), (2, 2)) for s in (0, 1, 2)),
        [(1, 1, 0), (1, 1, 2), (4, 1, 1), (2, 2, 0), (2, 2, 2)],
    ),
)
def test_lag_is_the_closed_form(
    finished: Finished, updates_per_round: int, passes: int, staleness: int
) -> None:
    mode = "sync" if staleness == 0 else "lagged"
    rows, _ = finished(
        *SHORT,
        "run.updates=16",
        "algo=grpo",
        f"mode={mode}",
        f"mode.max_staleness={staleness}",
        f"run.updates_per_round={updates_per_round}",
        f"run.passes={passes}",
    )
    per_round = updates_per_round * passes
    assert len(rows) == 16 // per_round
    for round_, row in enumerate(rows):
        lag = min(staleness, round_)
        assert row["lag/rounds_min"] == row["lag/rounds_max"] == lag
        # sync: 0 .. N*T - 1; one round stale: N*T .. 2*N*T - 1
        assert row["lag/updates_min"] == lag * per_round
        assert row["lag/updates_max"] == (lag + 1) * per_round - 1
        assert row["sample/version"] == round_ - lag
        counts = row["lag/updates_histogram"]
        assert set(counts.values()) == {8}, "4 groups of 2 a minibatch, all with credit"
        assert len(counts) == per_round
        assert row["total/updates"] == (round_ + 1) * per_round


class Recorder(Generator, Reward):
    """Notes what a worker is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, tuple[int, ...]]] = []

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        weights = feed.at(0)
        self.asked.append((weights.version, chunk.round, tuple(p.id for p in chunk.prompts)))
        return ()

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return []


@pytest.mark.parametrize("staleness", [0, 1, 5])
def test_every_mode_asks_for_the_same_prompts_and_never_beyond_the_end(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    from rlhf_lab.models.options import PretrainedModel

    recorder = Recorder()
    worker = RolloutWorker(recorder, recorder, False)
    monkeypatch.setattr(build_rollout, "build_executor", lambda *_: InlineExecutor(lambda: worker))
    config = make_config(
        "mode=lagged", f"mode.max_staleness={staleness}", "generator.chunk_groups=3", *SHORT
    )
    sources = Sources(PretrainedModel("none", "none"))
    tokenizer = config.task.tokenizer()
    with build_pipeline(config, sources, None, tokenizer) as pipe:
        for version in range(config.run.num_rounds):
            taken = pipe.take(Weights(version, {}))
            assert [r.chunk.round for r in taken.rollouts] == [version, version]
    assert [ids for _, _, ids in recorder.asked] == [
        tuple(range(start, start + size))
        for round_ in range(config.run.num_rounds)
        for start, size in ((4 * round_, 3), (4 * round_ + 3, 1))
    ]
    assert all(version == max(0, round_ - staleness) for version, round_, _ in recorder.asked)


class Failing(Generator):
    """A generator that breaks."""

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        raise OSError("the generator broke")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_rollouts_error_stops_the_run_with_its_own_message(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, mode: str, tmp_path: Path
) -> None:

    monkeypatch.setattr(
        build_rollout,
        "build_worker",
        lambda *_: RolloutWorker(Failing(), Recorder(), False),
    )
    executor = "thread" if mode == "async" else "inline"
    folder = tmp_path / "broken"
    options = (*SHORT, f"mode={mode}", f"mode.executor={executor}", f"output.dir={folder}")
    with pytest.raises(OSError, match="the generator broke"):
        lifecycle.train(make_config(*options), Console(quiet=True), FACTS)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["state"] == "failed"
    assert "the generator broke" in manifest["error"]


class Echo(Generator, Reward):
    """Writes the prompt's number after a pause that nobody can foresee, and rewards it with it."""

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        version = feed.at(0).version
        time.sleep(random.random() / 200)
        return tuple(
            Group(
                prompt,
                tuple(
                    Sample((prompt.id,), (-1.0,), version, Finish.eos, f"{prompt.id}/{k}")
                    for k in range(chunk.group_size)
                ),
            )
            for prompt in chunk.prompts
        )

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [tuple(float(g.prompt.id) for _ in g.samples) for g in groups]


@pytest.mark.parametrize(("staleness", "prefetch"), [(0, 2), (1, 2), (4, 2), (0, 64), (1, 64)])
def test_prompts_responses_and_rewards_stay_together_whoever_is_first(
    staleness: int, prefetch: int
) -> None:
    def make(number: int) -> Chunk:
        ids = range(3 * number, 3 * number + 3)
        prompts = tuple(Prompt(i, (1,), Example(f"row/{i}", "a", "b")) for i in ids)
        return Chunk(number // 4, number % 4, prompts, 2)

    rounds, per_round = 12, 4
    executor = ThreadExecutor(
        [lambda: RolloutWorker(Echo(), Echo(), False)] * 5,
        prefetch=prefetch,
    )
    mode = Mode("async", staleness, ExecutorKind.thread, 5)
    budget = StalenessBudget(staleness, per_round, rounds)
    with chunk_pipeline(executor, budget, make, per_round, mode) as pipe:
        for version in range(rounds):
            taken = pipe.take(Weights(version, {}))
            groups = [group for rollout in taken.rollouts for group in rollout.groups]
            first = version * per_round * 3
            assert [group.prompt.id for group in groups] == list(range(first, first + 12))
            for group in groups:
                assert [s.text for s in group.samples] == [f"{group.prompt.id}/{k}" for k in (0, 1)]
                assert group.rewards == (group.prompt.id,) * 2
                assert {s.version for s in group.samples} == {max(0, version - staleness)}
            pipe.fill(Weights(version + 1, {}))
        assert pipe.tokens() == (rounds * per_round * 6, 0)
