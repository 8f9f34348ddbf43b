"""The contracts of the modes: exact lag, the same prompts, bit-identical results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import MakeConfig
from examples import FACTS

from rlhf_lab import commands
from rlhf_lab.config import ALGORITHMS, Config
from rlhf_lab.rollout.executor import InlineExecutor
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.trackers.console import Console
from rlhf_lab.types import Chunk, Group, Weights


def run(config: Config) -> tuple[list[dict[str, Any]], str]:
    """Rows of a run without what a clock measured, and the digest of its last weights."""
    folder = commands.train(config, Console(quiet=True), FACTS)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    manifest = json.loads((folder / "manifest.json").read_text())
    exact = [{k: v for k, v in row.items() if not k.startswith("seconds/")} for row in rows]
    return exact, manifest["weights_digest"]


SHORT = ("run.updates=8", "eval=none", "sft.steps=4")


@pytest.mark.parametrize("algo", list(ALGORITHMS))
@pytest.mark.parametrize("staleness", [1, 3])
def test_a_threaded_run_is_its_own_simulation(
    make_config: MakeConfig, algo: str, staleness: int
) -> None:
    options = (*SHORT, f"algo={algo}", f"mode.max_staleness={staleness}")
    lagged = run(make_config("mode=lagged", *options))
    threaded = run(make_config("mode=async", "mode.executor=thread", *options))
    assert threaded == lagged


@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_async_without_staleness_is_sync(make_config: MakeConfig, algo: str) -> None:
    options = (*SHORT, f"algo={algo}")
    sync = run(make_config("mode=sync", *options))
    threaded = run(
        make_config("mode=async", "mode.executor=thread", "mode.max_staleness=0", *options)
    )
    assert threaded == sync


def test_a_generator_in_another_process_changes_no_bit(make_config: MakeConfig) -> None:
    options = (*SHORT, "run.updates_per_round=2", "generator.chunk_groups=3")
    lagged = run(make_config("mode=lagged", *options))
    processes = run(make_config("mode=async", "mode.num_generators=2", *options))
    assert processes == lagged


def test_staleness_changes_the_result(make_config: MakeConfig) -> None:
    assert run(make_config(*SHORT)) != run(make_config("mode=lagged", *SHORT))


def test_the_same_seed_repeats_and_another_does_not(make_config: MakeConfig) -> None:
    first = run(make_config(*SHORT))
    assert run(make_config(*SHORT)) == first
    assert run(make_config(*SHORT, "seed=2"))[1] != first[1]


@pytest.mark.parametrize(("updates_per_round", "passes"), [(1, 1), (4, 1), (2, 2)])
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_lag_is_the_closed_form(
    make_config: MakeConfig, updates_per_round: int, passes: int, staleness: int
) -> None:
    mode = "sync" if staleness == 0 else "lagged"
    rows, _ = run(
        make_config(
            *SHORT,
            "run.updates=16",
            "algo=grpo",
            f"mode={mode}",
            f"mode.max_staleness={staleness}",
            f"run.updates_per_round={updates_per_round}",
            f"run.passes={passes}",
        )
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


class Recorder:
    """Notes what a worker is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, tuple[int, ...]]] = []

    def generate(self, weights: Weights, chunk: Chunk) -> tuple[Group, ...]:
        self.asked.append((weights.version, chunk.round, tuple(p.id for p in chunk.prompts)))
        return ()

    def score(self, groups: tuple[Group, ...]) -> list[tuple[float, ...]]:
        return []


@pytest.mark.parametrize("staleness", [0, 1, 5])
def test_every_mode_asks_for_the_same_prompts_and_never_beyond_the_end(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    from rlhf_lab import build
    from rlhf_lab.models.causal_lm import PretrainedModel

    recorder = Recorder()
    worker = RolloutWorker(recorder, recorder, False)  # type: ignore[arg-type]
    monkeypatch.setattr(build, "executor", lambda *_: InlineExecutor(lambda: worker))
    config = make_config(
        "mode=lagged", f"mode.max_staleness={staleness}", "generator.chunk_groups=3", *SHORT
    )
    sources = build.Sources(PretrainedModel("none", "none"))
    tokenizer = config.task.tokenizer()
    with build.pipeline(config, sources, tokenizer) as pipe:
        for version in range(config.run.num_rounds):
            rollouts = pipe.take(Weights(version, {}))
            assert [r.chunk.round for r in rollouts] == [version, version]
    assert [ids for _, _, ids in recorder.asked] == [
        tuple(range(start, start + size))
        for round_ in range(config.run.num_rounds)
        for start, size in ((4 * round_, 3), (4 * round_ + 3, 1))
    ]
    assert all(version == max(0, round_ - staleness) for version, round_, _ in recorder.asked)


class Failing:
    """A generator that breaks."""

    def generate(self, weights: Weights, chunk: Chunk) -> tuple[Group, ...]:
        raise OSError("the generator broke")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_rollouts_error_stops_the_run_with_its_own_message(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, mode: str, tmp_path: Path
) -> None:
    from rlhf_lab import build

    monkeypatch.setattr(
        build,
        "make_worker",
        lambda *_: RolloutWorker(Failing(), Recorder(), False),  # type: ignore[arg-type]
    )
    executor = "thread" if mode == "async" else "inline"
    folder = tmp_path / "broken"
    options = (*SHORT, f"mode={mode}", f"mode.executor={executor}", f"output.dir={folder}")
    with pytest.raises(OSError, match="the generator broke"):
        commands.train(make_config(*options), Console(quiet=True), FACTS)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["state"] == "failed"
    assert "the generator broke" in manifest["error"]
