"""Killed at any moment, a run goes on as if nothing had happened; failures are noticed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.cli.exit_codes import INTERRUPTED, REQUEUE
from rlhf_lab.experiment.build import evaluator
from rlhf_lab.experiment.build import rollout as build_rollout
from rlhf_lab.experiment.build.engine import build_engine
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.rollout.background import ProcessExecutor
from rlhf_lab.rollout.chunk_states import QueuedChunk
from rlhf_lab.rollout.mode import OnFailure
from rlhf_lab.rollout.process import FailurePolicy, GeneratorFailure, GeneratorProcess
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs import disk, forkserver, memory
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot, state_bytes
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Rollout, Span
from rlhf_lab.types.samples import Finish, Group, Sample
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS
from tests.support.forked import (
    BESIDES,
    PHASES,
    WITHIN,
    Moment,
    Note,
    Press,
    chunk,
    command,
    demand,
    group_command,
    no_worker,
    obedient,
    train_on_a_full_disk,
)
from tests.support.survival import (
    exact_rows,
    finish,
    is_running,
    killed_at,
    outcome,
    start,
    wait_until,
)
from tests.support.variants import names, slow, variants

ROUNDS = (
    "run.updates=16",
    "run.updates_per_round=2",
    "generator.chunk_groups=3",
    "eval.snapshots=2",
    "sft.steps=4",
    "checkpoint=rounds",
)
# A function gives the rewards: no reward model has to be trained and read.
CHEAP = ("task=arithmetic", "reward=function", "reward.path=tests.support.lively.lively")
SHORT = (*ROUNDS, *CHEAP, "eval.prompts=4")
# Of several turns, by the rewards of their environment.
EPISODES = (
    *(*ROUNDS, "eval.prompts=4", "sft.steps=40", "task=ask_nano", "task.ask_rate=0.9"),
    *("reward=environment", "algo=grpo", "run.group_size=2"),
)
UNJUDGED = (*SHORT, "eval.snapshots=0")
MODES = {
    "sync": ("mode=sync",),
    "lagged": ("mode=lagged", "mode.max_staleness=2"),
    "drawn": ("mode=lagged", 'mode.lag_probabilities="0.5,0.5"'),
    "thread": ("mode=async", "mode.executor=thread", "mode.max_staleness=2"),
    "process": ("mode=async", "mode.num_generators=2", "mode.max_staleness=2"),
    "partial": ("mode=partial", "mode.max_staleness=2", "mode.segment_tokens=3"),
    "recycled": ("mode=partial", "mode.segment_tokens=2", "mode.over_provision=1.5"),
}

# The same bits without processes.
SIMULATED = {"process": ("mode=lagged", "mode.max_staleness=2")}
WITH_EPISODES = {
    "process": MODES["process"],
    "turns": ("mode=partial_turns", "mode.executor=inline", "mode.max_staleness=2"),
    "tokens": ("mode=partial", "mode.segment_tokens=5", "mode.max_staleness=2"),
    "recycled": ("mode=partial", "mode.segment_tokens=5", "mode.over_provision=1.5"),
}
RUNS = {
    **{mode: (*SHORT, *MODES[mode]) for mode in MODES},
    **{f"episodes-{mode}": (*EPISODES, *WITH_EPISODES[mode]) for mode in WITH_EPISODES},
}
EVERYWHERE = (*PHASES, *WITHIN)
# Where generators are at work, or what they wrote and wait for is saved or read again.
OF_GENERATORS = "take,sync,take 2,checkpoint,generate,score,restore,sealed".split(",")
# A life of a run costs a second of CPU: `make test` has every point once, those of generators in
# the mode that keeps most beside the trainer.
KILLED: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    **{name: (options, EVERYWHERE) for name, options in RUNS.items()},
    "sync": (RUNS["sync"], (*EVERYWHERE, *BESIDES)),
    "process-generators": (RUNS["process"], OF_GENERATORS),
    "sync-trainer": (RUNS["sync"], [at for at in EVERYWHERE if at not in OF_GENERATORS]),
}


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("case", variants(KILLED, ("process-generators", "sync-trainer")))
def test_a_run_killed_at_every_point_ends_as_one_that_never_was(
    make_config: MakeConfig, tmp_path: Path, case: tuple[Sequence[str], Sequence[str]]
) -> None:
    """Each life of the run ends at the next point, in a round that may be that of the last one."""
    options, points = case
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(make_config(*options, f"output.dir={whole}"))
    resuming = make_config(*options, f"output.dir={killed}", "output.resume=true")
    for number, point in enumerate(points):
        killed_at(resuming, point, min(number // 3, 6))
    finish(resuming)
    assert outcome(killed) == outcome(whole)
    assert (killed / "schedule.jsonl").read_text() == (whole / "schedule.jsonl").read_text()
    assert exact_rows(killed / "evals.jsonl") == exact_rows(whole / "evals.jsonl")
    walls = [row["seconds/wall"] for row in read_rows(killed / "metrics.jsonl")]
    assert walls == sorted(walls)
    assert not list((killed / "checkpoints").glob(f"{disk.DRAFT}*"))


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = (*UNJUDGED, "mode=lagged", "checkpoint.keep=3")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    lifecycle.train(make_config(*options, f"output.dir={whole}"), Console(quiet=True), FACTS)
    shutil.copytree(whole, broken)
    manifest = json.loads((broken / "manifest.json").read_text())
    digest = manifest.pop("weights_digest")
    (broken / "manifest.json").write_text(json.dumps(manifest | {"state": "failed"}))
    saved = sorted((broken / "checkpoints").iterdir())
    assert [path.name for path in saved] == ["00000005", "00000006", "00000007"]
    optimizer = saved[-1] / "optimizer.safetensors"
    optimizer.write_bytes(optimizer.read_bytes()[:-1])
    (saved[-2] / "queue.jsonl").unlink()
    resuming = make_config(*options, f"output.dir={broken}", "output.resume=true")
    lifecycle.train(resuming, Console(quiet=False), FACTS)
    said = capsys.readouterr().out
    assert "optimizer.safetensors was cut short or changed: using the one before it" in said
    assert "lacks its file queue.jsonl: using the one before it" in said
    assert "resumed at round 5 of 8" in said
    assert outcome(broken) == outcome(whole)
    assert outcome(broken)[1] == digest


@pytest.mark.usefixtures("processes")
def test_a_run_without_checkpoints_starts_again(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    options = (*UNJUDGED, "checkpoint=none", f"output.dir={folder}", "output.resume=true")
    killed_at(make_config(*options), "take", 5)
    assert rows_of(folder) == 5
    assert not list(folder.glob("checkpoints/*"))
    killed_at(make_config(*options), "take", 1)
    assert "resumed" in json.loads((folder / "manifest.json").read_text())
    assert rows_of(folder) == 1


def rows_of(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("mode", "number", "point"),
    [
        pytest.param("sync", signal.SIGTERM, "update", marks=pytest.mark.slow),
        pytest.param("sync", signal.SIGUSR1, "take", marks=pytest.mark.slow),
        pytest.param("process", signal.SIGTERM, "take", marks=pytest.mark.slow),
        pytest.param("process", signal.SIGUSR1, "update", marks=pytest.mark.slow),
        pytest.param("recycled", signal.SIGTERM, "take", marks=pytest.mark.slow),
        ("process", signal.SIGUSR1, "take"),
        ("sync", signal.SIGINT, "update"),
    ],
)
def test_a_signal_saves_a_checkpoint_and_asks_to_be_run_again(
    make_config: MakeConfig,
    finished: Finished,
    tmp_path: Path,
    mode: str,
    number: signal.Signals,
    point: str,
) -> None:
    options = (*UNJUDGED, *MODES[mode], "checkpoint=minutes")
    stopped = tmp_path / "stopped"
    resuming = make_config(*options, f"output.dir={stopped}", "output.resume=true")
    pids = tmp_path / "generators"
    process = start(resuming, Moment(point, 3, Note(pids, number)))
    process.join()
    is_interrupt = number == signal.SIGINT
    assert process.exitcode == (INTERRUPTED if is_interrupt else REQUEUE)
    (checkpoint,) = (stopped / "checkpoints").iterdir()
    manifest = json.loads((stopped / "manifest.json").read_text())
    assert manifest["state"] == ("interrupted" if is_interrupt else "stopped")
    # Before the round where generators are waited for, or after it.
    assert int(checkpoint.name) == rows_of(stopped)
    assert rows_of(stopped) == 4 or (point == "take" and rows_of(stopped) == 3)
    generators = json.loads(pids.read_text())
    assert len(generators) == {"process": 2, "recycled": 1}.get(mode, 0)
    assert not [pid for pid in generators if is_running(pid)]
    finish(resuming)
    assert outcome(stopped) == finished(*UNJUDGED, *SIMULATED.get(mode, MODES[mode]))


@pytest.mark.usefixtures("processes")
def test_the_command_line_returns_the_requeue_code_and_resume_finishes(
    cache: Path, tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    options = ["debug=tiny", f"output.cache={cache}", f"output.dir={folder}", *UNJUDGED[:-1]]

    def call(*words: str, moment: Moment | None = None) -> tuple[int | None, str]:
        process = forkserver.start(command, (words, str(log), moment))
        process.join()
        return process.exitcode, log.read_text()

    code, said = call("train", *options, moment=Moment("update", 2, signal.SIGTERM))
    assert code == REQUEUE, said
    assert f"of round 3; `rlhf-lab resume {folder}` continues it" in said
    code, said = call("train", *options, "output.resume=true", "run.passes=2")
    assert code == 2
    assert "was started with other settings" in said
    code, said = call("resume", str(folder))
    assert code == 0, said
    assert "resumed at round 3 of 8" in said
    assert rows_of(folder) == 8


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("mode", names(["sync", "lagged", "async"], ["async"]))
def test_ctrl_c_reaches_the_whole_group_and_loses_no_round(
    cache: Path, finished: Finished, tmp_path: Path, mode: str
) -> None:
    options = ["debug=tiny", f"output.cache={cache}", *UNJUDGED, f"mode={mode}"]
    folder, log = tmp_path / "run", tmp_path / "log"

    def call(*words: str, moment: Moment | None = None) -> tuple[int | None, str]:
        process = forkserver.start(group_command, (words, str(log), moment))
        process.join()
        return process.exitcode, log.read_text()

    pids = tmp_path / "generators"
    press = Press(pids, times=1)
    where = f"output.dir={folder}"
    code, said = call("train", *options, where, moment=Moment("update", 3, press))
    assert code == INTERRUPTED, said
    assert "stopping after this round" in said
    assert f"interrupted; its newest checkpoint is of round 4; `rlhf-lab resume {folder}`" in said
    assert "Traceback" not in said
    generators = json.loads(pids.read_text())
    assert len(generators) == (mode == "async")
    assert not [pid for pid in generators if is_running(pid)]
    code, said = call("resume", str(folder))
    assert code == 0 and "resumed at round 4 of 8" in said, said
    simulated = "mode=lagged" if mode == "async" else f"mode={mode}"
    assert outcome(folder) == finished(*UNJUDGED, simulated)


@pytest.mark.usefixtures("processes")
def test_a_second_ctrl_c_ends_the_run_at_once(cache: Path, tmp_path: Path) -> None:
    folder, log = tmp_path / "run", tmp_path / "log"
    short = (*UNJUDGED, "run.updates=6", "checkpoint=minutes")
    options = (f"output.cache={cache}", *short, f"output.dir={folder}")
    words = ("train", "debug=tiny", *options)
    press = Press(tmp_path / "generators", times=2)
    process = forkserver.start(group_command, (words, str(log), Moment("update", 1, press)))
    process.join()
    assert process.exitcode == INTERRUPTED, log.read_text()
    assert json.loads((folder / "manifest.json").read_text())["state"] == "interrupted"
    assert rows_of(folder) == 1, "the round was not finished"
    assert "it has no checkpoint; `rlhf-lab resume" in log.read_text()
    resume = forkserver.start(group_command, (("resume", str(folder)), str(log)))
    resume.join()
    assert resume.exitcode == 0 and "begins again at round 0" in log.read_text()


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_jobs_of_a_parallel_sweep_have_generators_of_their_own(cache: Path, tmp_path: Path) -> None:
    options = ["-m", "launcher=joblib", "debug=tiny", "mode=async", "seed=1,2", "eval=none"]
    options += [f"output.cache={cache}", f"output.root={tmp_path}/sweep"]
    done = subprocess.run(
        [sys.executable, "-m", "rlhf_lab.cli.main", "train", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = list_runs(tmp_path / "sweep")
    assert [(run.state, run.rounds) for run in found] == [("finished", 4)] * 2


@pytest.mark.usefixtures("processes")
def test_resuming_a_run_that_goes_on_or_is_finished(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    config = make_config(*UNJUDGED, f"output.dir={folder}", "output.resume=true")
    process = start(config, Moment("update", 1, Note(tmp_path / "stays")))
    wait_until((tmp_path / "stays").exists)
    with pytest.raises(UserError, match=r"is in use by process \d+ on"):
        lifecycle.train(config, Console(quiet=True), FACTS)
    process.kill()
    process.join()
    with pytest.raises(UserError, match=r"pass output\.dir"):
        lifecycle.train(make_config("output.resume=true"), Console(quiet=True), FACTS)
    done = tmp_path / "done"
    config = make_config(*UNJUDGED, f"output.dir={done}", "output.resume=true")
    lifecycle.train(config, Console(quiet=True), FACTS)
    before = (done / "metrics.jsonl").read_text()
    lifecycle.train(config, Console(quiet=False), FACTS)
    assert "has finished already" in capsys.readouterr().out
    assert (done / "metrics.jsonl").read_text() == before


# --- free mode and its replay -------------------------------------------------------------------


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "options",
    [
        slow("mode.executor=thread"),
        slow("mode.executor=thread", "mode.weights=latest_per_token"),
        slow(
            "mode.executor=thread",
            "mode.when_stale=drop",
            "mode.max_staleness=0",
            "mode.extra_rounds=2",
        ),
        ("mode.num_generators=2", "mode.weights=latest_per_token"),
    ],
)
def test_a_free_run_is_repeated_by_its_schedule(
    make_config: MakeConfig, tmp_path: Path, options: tuple[str, ...]
) -> None:
    free, replay = tmp_path / "free", tmp_path / "replay"
    common = (*UNJUDGED, "run.updates=24")
    config = make_config(*common, "mode=free", *options, f"output.dir={free}")
    lifecycle.train(config, Console(quiet=True), FACTS)
    bound = [
        o for o in options if o.startswith(("mode.when_stale", "mode.max_s", "mode.extra_rounds"))
    ]
    lifecycle.train(
        make_config(
            *common, "mode=recorded", f"mode.schedule={free}", *bound, f"output.dir={replay}"
        ),
        Console(quiet=True),
        FACTS,
    )
    assert outcome(replay) == outcome(free)
    assert (replay / "schedule.jsonl").read_text() == (free / "schedule.jsonl").read_text()
    rows, _ = outcome(free)
    assert all(row["lag/rounds_max"] <= config.mode.max_staleness for row in rows)
    schedule = read_rows(free / "schedule.jsonl")
    dropped = sum(row["dropped"] for row in schedule)
    assert (dropped > 0) == ("mode.when_stale=drop" in options)
    if dropped:
        last = rows[-1]
        assert last["total/dropped_groups"] > 0
        told = next(row for row in rows if row["dropped/groups"])
        assert told["dropped/lag_rounds_min"] > config.mode.max_staleness
        assert told["dropped/length"] > 0


@pytest.mark.usefixtures("processes")
def test_a_free_run_killed_and_resumed_can_still_be_replayed(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    free, replay = tmp_path / "free", tmp_path / "replay"
    options = (*UNJUDGED, "mode=free", "mode.executor=thread")
    resuming = make_config(*options, f"output.dir={free}", "output.resume=true")
    for round_, point in enumerate(("generate", "score", "log", "update 2", "track", "sealed")):
        killed_at(resuming, point, round_)
    finish(resuming)
    finish(make_config(*UNJUDGED, "mode=recorded", f"mode.schedule={free}", f"output.dir={replay}"))
    assert outcome(replay) == outcome(free)


def test_a_schedule_that_does_not_fit_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    free = tmp_path / "lagged"
    common = UNJUDGED
    options = ("mode=lagged", "mode.max_staleness=2", f"output.dir={free}")
    lifecycle.train(make_config(*common, *options), Console(quiet=True), FACTS)

    def refuse(*options: str) -> str:
        with pytest.raises(UserError) as caught:
            config = make_config(*common, "mode=recorded", *options)
            lifecycle.train(config, Console(quiet=True), FACTS)
        return str(caught.value)

    assert "pass mode.max_staleness=2" in refuse(f"mode.schedule={free}", "mode.max_staleness=1")
    assert "this run has 16" in refuse(f"mode.schedule={free}", "run.updates=32")
    assert "has no schedule.jsonl" in refuse(f"mode.schedule={tmp_path}/nothing")


# --- generators that fail -----------------------------------------------------------------------


def weights(version: int) -> Weights:
    return Weights(version, {"a": torch.full((3, 2), float(version)), "b": torch.ones(5)})


@contextmanager
def generators(
    on_failure: OnFailure = OnFailure.stop, hang_seconds: float = 60.0, num: int = 1
) -> Iterator[tuple[ProcessExecutor, list[str]]]:
    """Generators in processes, and what they reported; nothing of them is left afterwards."""
    said: list[str] = []
    care = FailurePolicy(on_failure, hang_seconds, 2, said.append)
    executor = ProcessExecutor([obedient] * num, 2, weights(0).state, 4, care)
    # The fork server's socket stays where it is, and what generators leave is looked for elsewhere:
    # other processes of the tests have some too.
    forkserver.warm()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        executor.start()
        try:
            yield executor, said
        finally:
            pids = executor.pids
            executor.close()
            assert not [pid for pid in pids if is_running(pid)]
            assert not list(Path("/dev/shm").glob(f"*_{os.getpid()}_*"))
            assert not list(Path(folder).glob("rlhf_lab_*"))


@pytest.mark.usefixtures("processes")
def test_weights_cross_over_as_they_are_and_errors_with_their_own_traceback() -> None:
    with generators(num=2) as (executor, said):
        futures = [executor.submit(weights(v), chunk(v)) for v in (3, 3, 4, 5)]
        texts = [f.result().groups[0].samples[0].text for f in futures]
        assert texts == ["23.0", "23.0", "29.0", "35.0"]
        assert [f.result().version for f in futures] == [3, 3, 4, 5]
        future = executor.submit(weights(6), demand(6, "raise"))
        with pytest.raises(ZeroDivisionError, match="divided by nothing") as caught:
            future.result()
        assert 'raise ZeroDivisionError("the generator divided by nothing")' in str(
            caught.value.__cause__
        )
        assert executor.failure is caught.value
        assert said == []


@pytest.mark.usefixtures("processes")
def test_a_killed_generator_is_named_with_what_it_was_doing() -> None:
    with generators() as (executor, _):
        future = executor.submit(weights(0), demand(4, "slow"))
        os.kill(executor.pids[0], signal.SIGKILL)
        with pytest.raises(GeneratorFailure, match=r"killed by SIGKILL, at chunk 0 of round 4"):
            future.result()


@pytest.mark.linux
@pytest.mark.usefixtures("processes")
def test_a_generators_memory_counts_as_a_childs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_largest_counted", 0)
    with generators() as (executor, _):
        pages = int(Path(f"/proc/{executor.pids[0]}/statm").read_text().split()[1])
    size = pages * resource.getpagesize()
    assert 0 < size <= memory.resident_bytes(resource.RUSAGE_CHILDREN)
    assert size <= memory._largest_counted


@pytest.mark.usefixtures("liveness")
@pytest.mark.parametrize("how", ["hang", "stop"])
def test_a_hung_generator_is_told_and_ended(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough to get to work, and to write down a stack, on a busy machine.
    monkeypatch.setattr("rlhf_lab.rollout.generator_main.StackFile.answer_seconds", 1.5)
    with generators(hang_seconds=4.0) as (executor, said):
        future = executor.submit(weights(0), demand(0, "hang" if how == "hang" else "slow"))
        if how == "stop":
            os.kill(executor.pids[0], signal.SIGSTOP)
        with pytest.raises(GeneratorFailure, match="hung at chunk 0 of round 0") as caught:
            future.result()
        (report,) = said
        assert "has made no progress" in report
        where = "in hang_here" if how == "hang" else "does not answer signals"
        assert where in report and where in str(caught.value)


@pytest.mark.usefixtures("processes")
def test_a_restarted_generator_writes_the_same() -> None:
    with generators(OnFailure.restart) as (executor, said):
        slow = executor.submit(weights(2), demand(0, "slow"))
        after = executor.submit(weights(3), chunk(1))
        os.kill(executor.pids[0], signal.SIGKILL)
        assert slow.result().groups[0].samples[0].text == "17.0"
        assert after.result().groups[0].samples[0].text == "23.0"
        assert executor.restarts == 1
        assert "started again (1 of 2 times)" in said[0] and "SIGKILL" in said[0]


def test_a_generator_that_is_being_started_again_is_not_taken_for_a_hang() -> None:
    said: list[str] = []
    shared: Any = None
    generator = GeneratorProcess(
        obedient, shared, 0, FailurePolicy(OnFailure.restart, 1.0, 1, said.append)
    )
    generator._outstanding.append((0, chunk(0)))
    generator._progress._last = (0, -1e9)
    with generator._life:
        generator.watch()
    with pytest.raises(AttributeError, match="_stacks"):  # there is no process to ask
        generator.watch()
    assert not said


class Servers:
    """Build workers whose server answers until it is dead: then neither a chunk nor a new worker
    finds it."""

    def __init__(self, alive: Path) -> None:
        self.alive = alive

    def __call__(self) -> RolloutWorker:
        if not self.alive.exists():
            raise UserError("generator.urls=http://gpu2:8100: no vLLM server answers there")
        return obedient()


@pytest.mark.usefixtures("processes")
def test_a_dead_server_of_somebody_else_ends_the_run_at_the_first_restart(tmp_path: Path) -> None:
    alive, said = tmp_path / "alive", list[str]()
    alive.touch()
    care = FailurePolicy(OnFailure.restart, 60.0, 9, said.append)
    executor = ProcessExecutor([Servers(alive)], 2, weights(0).state, 4, care)
    executor.start()
    try:
        alive.unlink()
        with pytest.raises(UserError, match="no vLLM server answers") as caught:
            executor.submit(weights(0), demand(0, "raise")).result()
        assert "could not be started again after: the generator divided" in str(
            caught.value.__notes__
        )
        assert len(said) == 1
    finally:
        executor.close()


@pytest.mark.usefixtures("processes")
def test_restarts_end_somewhere() -> None:
    with generators(OnFailure.restart) as (executor, said):
        with pytest.raises(ZeroDivisionError):
            executor.submit(weights(0), demand(0, "raise")).result()
        assert len(said) == 2


@pytest.mark.usefixtures("processes")
def test_a_worker_that_cannot_be_built_stops_the_run_before_it_starts() -> None:
    care = FailurePolicy(OnFailure.stop, 60.0, 0, print)
    executor = ProcessExecutor([no_worker] * 2, 2, weights(0).state, 4, care)
    with pytest.raises(MemoryError, match="does not fit"):
        executor.start()
    assert not [pid for pid in executor.pids if is_running(pid)]


@pytest.mark.usefixtures("processes")
def test_a_run_whose_generator_is_killed_restarts_it_and_keeps_the_bits(
    make_config: MakeConfig, finished: Finished, tmp_path: Path
) -> None:
    common = (*UNJUDGED, "mode.max_staleness=2")
    killed = tmp_path / "killed"
    options = ("mode=async", "mode.on_generator_failure=restart", f"output.dir={killed}")
    kill = Note(tmp_path / "generators", signal.SIGKILL, is_for_generators=True)
    process = start(make_config(*common, *options), Moment("update", 2, kill))
    process.join()
    assert process.exitcode == 0
    assert outcome(killed) == finished(*common, "mode=lagged")
    last = json.loads((killed / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["timing/generator_restarts"] == 1


@pytest.mark.usefixtures("processes")
def test_a_run_whose_generator_is_killed_stops_with_a_checkpoint_and_goes_on_later(
    make_config: MakeConfig, finished: Finished, tmp_path: Path
) -> None:
    common = (*UNJUDGED, "mode.max_staleness=2")
    killed = tmp_path / "killed"
    resuming = make_config(
        *common, "mode=async", f"output.dir={killed}", "output.resume=true", "checkpoint=minutes"
    )
    kill = Note(tmp_path / "generators", signal.SIGKILL, is_for_generators=True)
    process = start(resuming, Moment("update", 2, kill))
    process.join()
    assert process.exitcode == 1
    manifest = json.loads((killed / "manifest.json").read_text())
    assert manifest["state"] == "failed"
    assert "killed by SIGKILL" in manifest["error"]
    (checkpoint,) = (killed / "checkpoints").iterdir()
    assert int(checkpoint.name) == rows_of(killed) < 8
    finish(resuming)
    assert outcome(killed) == finished(*common, "mode=lagged")


# --- the memory that weights cross in -----------------------------------------------------------


def test_shared_weights_come_out_as_they_went_in_and_pins_hold_them() -> None:
    shared = SharedWeights(weights(0).state, 3)
    for version in range(3):
        shared.write(weights(version))
    shared.pin(0, 1)
    shared.write(weights(3))
    assert [shared.holds(version) for version in range(4)] == [True, False, True, True]
    assert shared.newest() == 3
    for version in (0, 2, 3):
        state = shared.read(version).state
        assert all(torch.equal(state[name], t) for name, t in weights(version).state.items())
    with pytest.raises(LookupError, match="version 1 are not in shared memory"):
        shared.read(1)
    shared.pin(2, 1)
    shared.pin(3, 1)
    with pytest.raises(RuntimeError, match="all 3 slots of shared weights are in use"):
        shared.write(weights(4))


def test_large_versions_have_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(tensor.nbytes for tensor in weights(0).state.values())
    monkeypatch.setattr("rlhf_lab.rollout.shared.weights_digest", None)
    shared = SharedWeights(weights(0).state, 2, checked_bytes=size - 1)
    shared.write(weights(1))
    state = shared.read(1).state
    assert all(torch.equal(state[name], t) for name, t in weights(1).state.items())
    with pytest.raises(TypeError):
        SharedWeights(weights(0).state, 2, checked_bytes=size).write(weights(1))


def test_versions_that_shared_memory_cannot_hold_are_refused_before_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A container's 64 MiB would end in SIGBUS, without a message."""
    size = sum(tensor.nbytes for tensor in weights(0).state.values())
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=3 * size))
    SharedWeights(weights(0).state, 3)
    with pytest.raises(UserError, match=r"keeps 4 versions .*--shm-size.*mode\.max_staleness"):
        SharedWeights(weights(0).state, 4)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UserError, match=r"cannot be written: .*mode\.executor=thread"):
        SharedWeights(weights(0).state, 1)


def test_a_changed_byte_in_shared_memory_is_seen() -> None:
    shared = SharedWeights(weights(0).state, 2)
    shared.write(weights(1))
    shared._bytes[0, 5] ^= 1
    shared._bytes[1, 5] ^= 1
    with pytest.raises(RuntimeError, match="version 1 in shared memory are damaged"):
        shared.read(1)


# --- checkpoints --------------------------------------------------------------------------------


def snapshot(round_: int) -> Snapshot:
    whole = chunk(7)
    sample = Sample((5, 6), (-0.1, -1 / 3), 3, Finish.length, "é", (3, 4))
    rollout = Rollout(
        chunk=whole,
        groups=(Group(whole.prompts[0], (sample,), (0.1 + 0.2,)),),
        segments=((0, 3), (1, 4)),
        tokens={"generated_tokens": 2},
        spans=(Span("generate", 1.0, 2.0),),
        worker=1,
    )
    queue = [QueuedChunk(7, 3, True, rollout), QueuedChunk(8, 4, False, None)]
    versions = {version: weights(version) for version in (round_ - 1, round_)}
    optimizer = {"a/exp_avg": torch.randn(3, 2)}
    return Snapshot(round_, versions, optimizer, {"taken_tokens": 5}, queue, {"wall": 1.5})


def test_a_checkpoint_comes_back_with_all_its_bits(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", CheckpointOptions(keep=2))
    saved = [snapshot(round_) for round_ in (3, 4, 5)]
    for one in saved:
        checkpoints.save(one)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["00000004", "00000005"]
    found = checkpoints.newest(chunk, print)
    assert found is not None
    assert (found.round, found.counters, found.ledger) == (5, {"taken_tokens": 5}, {"wall": 1.5})
    assert torch.equal(found.optimizer["a/exp_avg"], saved[-1].optimizer["a/exp_avg"])
    assert sorted(found.weights) == [4, 5]
    assert torch.equal(found.weights[5].state["a"], weights(5).state["a"])
    done, running = found.queue
    assert running == QueuedChunk(8, 4, False, None)
    before = saved[-1].queue[0]
    assert isinstance(done, QueuedChunk) and isinstance(before, QueuedChunk)
    assert done.rollout is not None and before.rollout is not None
    assert done.rollout.groups == before.rollout.groups
    assert done.rollout.segments == ((0, 3), (1, 4))


def test_a_checkpoint_every_so_many_rounds_is_never_deleted(tmp_path: Path) -> None:
    options = CheckpointOptions("n", rounds=1, minutes=0, keep=2, keep_every=3)
    checkpoints = Checkpoints(tmp_path / "checkpoints", options)
    for round_ in range(1, 9):
        assert checkpoints.is_due(round_)
        checkpoints.save(snapshot(round_))
    sizes = state_bytes(tmp_path / "checkpoints")
    assert list(sizes) == [3, 6, 7, 8]
    files = [path for path in (tmp_path / "checkpoints/00000003").rglob("*") if path.is_file()]
    assert sizes[3] == sum(len(path.read_bytes()) for path in files)


def test_kept_checkpoints_are_due_where_no_others_are(tmp_path: Path) -> None:
    alone = Checkpoints(tmp_path, CheckpointOptions("n", minutes=0, keep_every=3))
    assert alone.is_on
    assert [round_ for round_ in range(1, 10) if alone.is_due(round_)] == [3, 6, 9]


def test_checkpoints_are_due_by_rounds_and_by_minutes(tmp_path: Path) -> None:
    now = [0.0]
    by_rounds = Checkpoints(
        tmp_path, CheckpointOptions("n", rounds=3, minutes=0), clock=lambda: now[0]
    )
    assert [by_rounds.is_due(round_) for round_ in (1, 2, 3)] == [False, False, True]
    by_time = Checkpoints(
        tmp_path, CheckpointOptions("m", rounds=0, minutes=2), clock=lambda: now[0]
    )
    assert not by_time.is_due(50)
    now[0] = 120.0
    assert by_time.is_due(51)


@pytest.mark.parametrize(
    "options", [{"rounds": -1}, {"minutes": -0.5}, {"keep": 0}, {"keep_every": -1}]
)
def test_checkpoint_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    (key,) = options
    with pytest.raises(UserError, match=f"checkpoint.{key}="):
        CheckpointOptions(**options)


def test_a_full_disk_keeps_the_checkpoints_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", CheckpointOptions())
    checkpoints.save(snapshot(3))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlhf_lab.runs.saved_tensors.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(snapshot(4))
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000003"]
    found = checkpoints.newest(chunk, print)
    assert found is not None and found.round == 3


@pytest.mark.usefixtures("processes")
def test_a_run_without_room_stops_whole_and_goes_on_when_there_is(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    options = UNJUDGED
    whole, full = tmp_path / "whole", tmp_path / "full"
    finish(make_config(*options, f"output.dir={whole}"))
    resuming = make_config(*options, f"output.dir={full}", "output.resume=true")
    optimizer = next((whole / "checkpoints").glob("*/optimizer.safetensors"))
    largest = optimizer.stat().st_size - 1
    process = forkserver.start(train_on_a_full_disk, (resuming, FACTS, largest))
    process.join()
    assert process.exitcode == 1
    manifest = json.loads((full / "manifest.json").read_text())
    assert manifest["state"] == "failed"
    assert "File too large" in manifest["error"]
    assert list((full / "checkpoints").iterdir()) == []
    assert not read_rows(full / "metrics.jsonl").is_cut
    finish(resuming)
    assert outcome(full) == outcome(whole)


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_first_step(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(UserError, match=r"output\.dir=.*Read-only file system.*name another"):
        lifecycle.train(make_config(*SHORT, f"output.dir={tmp_path}/x"), Console(quiet=True), FACTS)


# --- numbers that are none ----------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_stops_the_run_and_its_batch_is_kept(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    real = evaluator.build_reward

    class Spoiled(Reward):
        def __init__(self, scorer: Any) -> None:
            self._scorer = scorer
            self._calls = 0

        def score(self, groups: Any) -> list[tuple[float, ...]]:
            self._calls += 1
            rows: list[tuple[float, ...]] = self._scorer.score(groups)
            return [(value, *rows[0][1:]), *rows[1:]] if self._calls == 3 else rows

    monkeypatch.setattr(build_rollout, "build_reward", lambda *given: Spoiled(real(*given)))
    folder = tmp_path / "spoiled"
    config = make_config(*SHORT, "generator.chunk_groups=8", f"output.dir={folder}")
    with pytest.raises(FloatingPointError, match=rf"got reward {value}: no update was made"):
        lifecycle.train(config, Console(quiet=True), FACTS)
    kept = json.loads((folder / "failed_batch.json").read_text())
    assert f"reward {value}" in kept["why"]
    assert kept["groups"][0]["rewards"][0] == repr(value)
    assert (folder / "failed_batch.safetensors").is_file()
    assert rows_of(folder) == 2


def test_a_loss_that_is_no_number_is_not_applied(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlhf_lab.algos.pairs import OnlineDPO
    from rlhf_lab.types.data import LossOutput

    real = OnlineDPO.loss
    calls = []

    def spoiled(self: OnlineDPO, policy: Any, batch: Any) -> LossOutput:
        calls.append(1)
        output = real(self, policy, batch)
        return LossOutput(output.loss * float("nan")) if len(calls) == 4 else output

    monkeypatch.setattr(OnlineDPO, "loss", spoiled)
    folder = tmp_path / "spoiled"
    config = make_config(*SHORT, f"output.dir={folder}")
    with pytest.raises(FloatingPointError, match="the loss is nan: the update was not applied"):
        lifecycle.train(config, Console(quiet=True), FACTS)
    kept = json.loads((folder / "failed_batch.json").read_text())
    assert kept["why"].startswith("update 3 of round 1: the loss is nan")
    # The last checkpoint is of the round before, and whole.
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["00000001"]


def test_weights_that_are_no_numbers_are_refused_at_the_start(make_config: MakeConfig) -> None:
    config = make_config()
    model, _ = load_policy(config.model, config.task.tokenizer(), 1)
    with torch.no_grad():
        next(model.parameters())[0] = float("inf")
    with pytest.raises(FloatingPointError, match="the starting weights are not finite"):
        build_engine(config, model)
