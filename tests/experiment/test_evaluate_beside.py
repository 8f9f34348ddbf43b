"""Versions that a process beside the training judges: same bits, each once, whatever ends early."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.experiment.build.policy import Sources
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run import evaluate_beside, lifecycle, outputs
from rlhf_lab.experiment.run.evaluate import DIGEST
from rlhf_lab.experiment.run.evaluate_beside import EvaluationBeside, judge_offered
from rlhf_lab.runs import saved_tensors
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Weights
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import exact_rows, outcome, wait_until

# Four rounds of a rule: no reward model to be trained.
SHORT = ("task=arithmetic", "reward=task_rule", "run.updates=4", "run.updates_per_round=1")
EVERY_VERSION = EvalOptions(every=1)
NO_POLICY: Any = None
EVERY = (*SHORT, "eval.snapshots=0", "eval.every=1")


def train(config: Config) -> Path:
    return lifecycle.train(config, Console(quiet=True), FACTS)


def versions(folder: Path) -> list[int]:
    return [row["version"] for row in read_rows(folder / "evals.jsonl")]


def without_digest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != DIGEST} for row in rows]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run does not end before all versions that it has offered have their rows."""
    offered: set[int] = set()
    offer, finish = EvaluationBeside.offer, EvaluationBeside.finish

    def noting(self: EvaluationBeside, version: int) -> None:
        offer(self, version)
        offered.add(version)

    def waiting(self: EvaluationBeside) -> None:
        wanted = offered - {self._config.run.num_rounds}
        wait_until(lambda: wanted <= set(versions(self._folder)))
        finish(self)

    monkeypatch.setattr(EvaluationBeside, "offer", noting)
    monkeypatch.setattr(EvaluationBeside, "finish", waiting)


@pytest.fixture(scope="module")
def after(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose versions are all judged after it."""
    from tests.conftest import tiny

    folder = tmp_path_factory.mktemp("after") / "run"
    options = (*SHORT, "eval.snapshots=4", f"output.dir={folder}")
    return train(tiny(*options, cache=cache, root=folder.parent))


def test_training_has_the_bits_of_one_without_it_and_rows_those_of_the_evaluation_after(
    make_config: MakeConfig, tmp_path: Path, after: Path, patient: None, processes: None
) -> None:
    folder = tmp_path / "run"
    paused = make_config(
        *EVERY, f"output.dir={folder}", "checkpoint.pause_round=2", "output.resume=true"
    )
    train(paused)
    # Version 2 is offered and judged like those before it; it is no end of the run.
    before = read_rows(folder / "evals.jsonl")
    assert [row["version"] for row in before] == [0, 1, 2]
    train(make_config(*EVERY, f"output.dir={folder}", "output.resume=true"))
    assert outcome(folder) == outcome(after)
    rows = exact_rows(folder / "evals.jsonl")
    assert without_digest(rows) == exact_rows(after / "evals.jsonl")
    # The seconds show that no version was judged again.
    assert read_rows(folder / "evals.jsonl")[:3] == before
    assert (folder / "samples.jsonl").read_bytes() == (after / "samples.jsonl").read_bytes()


def test_a_process_that_is_killed_costs_the_run_nothing(
    make_config: MakeConfig,
    tmp_path: Path,
    after: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: None,
) -> None:
    offer = EvaluationBeside.offer

    def killing(self: EvaluationBeside, version: int) -> None:
        self._process.kill()
        self._process.join()
        offer(self, version)

    lines: list[str] = []
    monkeypatch.setattr(EvaluationBeside, "offer", killing)
    monkeypatch.setattr(Console, "print", lambda _, text: lines.append(text))
    folder = train(make_config(*EVERY, f"output.dir={tmp_path / 'run'}"))
    assert outcome(folder) == outcome(after)
    assert without_digest(exact_rows(folder / "evals.jsonl")) == exact_rows(after / "evals.jsonl")
    (warning,) = (line for line in lines if "beside" in line)
    assert "SIGKILL" in warning


# --- the process, called here -------------------------------------------------------------------


class Judge:
    """Judges every version by the sum of its weights."""

    reference = None

    def __init__(self) -> None:
        self.judged: list[int] = []

    def evaluate(self, weights: Weights, prompts: int) -> tuple[dict[str, Any], list[Any]]:
        self.judged.append(weights.version)
        if weights.version == 9:
            raise ArithmeticError("the judge is away")
        total = float(sum(tensor.sum() for tensor in weights.state.values()))
        return {
            "version": weights.version,
            "gold/mean": total,
            "eval/prompts": prompts,
            "eval/samples": 1,
        }, []


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    found = Judge()
    monkeypatch.setattr(evaluate_beside, "build_evaluator", lambda *_: found)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    return found


@pytest.fixture
def failures() -> Iterator[tuple[Connection, Connection]]:
    ours, theirs = Pipe(duplex=False)
    with ours, theirs:
        yield ours, theirs


def keep(folder: Path, version: int, value: float) -> None:
    (folder / "weights").mkdir(exist_ok=True)
    save_file({"w": torch.full((2,), value)}, folder / f"weights/{version:06d}.safetensors")


def offer(
    folder: Path, failures: Connection, *versions: int, options: EvalOptions = EVERY_VERSION
) -> None:
    """Offer versions to the process, which has judged one before it sees the next."""
    config: Any = SimpleNamespace(eval=options)
    offered = SimpleNamespace(get=iter([*versions, None]).__next__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate_beside, "read_ahead", lambda *_: offered)
        judge_offered(failures, failures, config, Sources(NO_POLICY), folder)


def test_a_version_is_judged_once_unless_its_weights_or_options_are_others(
    tmp_path: Path, judge: Judge, failures: tuple[Connection, Connection]
) -> None:
    for version in (0, 1, 2):
        keep(tmp_path, version, float(version))
    offer(tmp_path, failures[1], 0, 2, 1, 1, 0)
    assert judge.judged == [0, 2, 1]
    rows = read_rows(tmp_path / "evals.jsonl")
    assert [(row["version"], row["gold/mean"]) for row in rows] == [(0, 0.0), (1, 2.0), (2, 4.0)]
    keep(tmp_path, 1, 7.0)
    offer(tmp_path, failures[1], 0, 1)
    assert judge.judged == [0, 2, 1, 1]
    assert [row["gold/mean"] for row in read_rows(tmp_path / "evals.jsonl")] == [0.0, 14.0, 4.0]
    # What only says which versions are judged changes no row; the number of prompts does.
    offer(tmp_path, failures[1], 0, options=EvalOptions(every=3, snapshots=0, table_rows=1))
    assert judge.judged == [0, 2, 1, 1]
    offer(tmp_path, failures[1], 0, options=EvalOptions(every=1, prompts=9))
    assert judge.judged == [0, 2, 1, 1, 0]
    assert [row["eval/prompts"] for row in read_rows(tmp_path / "evals.jsonl")] == [9]


def test_the_error_of_the_process_comes_with_its_traceback(
    tmp_path: Path, judge: Judge, failures: tuple[Connection, Connection]
) -> None:
    keep(tmp_path, 9, 1.0)
    with pytest.raises(SystemExit):
        offer(tmp_path, failures[1], 9)
    error, text = failures[0].recv()
    assert isinstance(error, ArithmeticError)
    assert "Traceback" in text and "the judge is away" in text


# --- files and options --------------------------------------------------------------------------


def test_a_version_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    save = outputs.saver(RunDirectory(tmp_path, {}), {0, 2}, kept.append)
    for version in (0, 1):
        save(Weights(version, {"w": torch.zeros(2)}))
    assert kept == [0]
    seen: list[list[str]] = []

    def cut(_: object, path: Path) -> None:
        path.write_bytes(b"half")
        seen.append([one.name for one in (tmp_path / "weights").glob("0*")])
        raise OSError("no space")

    monkeypatch.setattr(saved_tensors, "save_file", cut)
    with pytest.raises(OSError, match="no space"):
        save(Weights(2, {"w": torch.zeros(2)}))
    assert seen == [["000000.safetensors"]] and kept == [0]
    assert [one.name for one in (tmp_path / "weights").iterdir()] == ["000000.safetensors"]


@pytest.mark.parametrize(
    ("every", "snapshots", "wanted"),
    [
        (0, 0, ()),
        (0, 2, (0, 5, 10)),
        (4, 0, (0, 4, 8, 10)),
        (4, 2, (0, 4, 5, 8, 10)),
        (10, 0, (0, 10)),
        (99, 0, (0, 10)),
        (1, 1, tuple(range(11))),
    ],
)
def test_versions_by_hand(every: int, snapshots: int, wanted: tuple[int, ...]) -> None:
    assert EvalOptions(every=every, snapshots=snapshots).versions(10) == wanted
