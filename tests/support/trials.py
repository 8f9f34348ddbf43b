"""Runs killed at many random moments, generators failing, memory over 500 rounds.

python -m tests.support.trials

The fast tests do a little of this; here it is done often, and the times are told.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.schema import register
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.rollout.mode import OnFailure
from rlhf_lab.rollout.process import FailurePolicy, GeneratorProcess
from rlhf_lab.rollout.shared import SharedWeights
from rlhf_lab.runs.trackers.console import Console
from tests.rollout.test_survival import MODES, ROUNDS, generators, rows_of, weights
from tests.support.forked import demand, obedient
from tests.support.survival import (
    finish,
    generators_at_work,
    killed_and_resumed,
    outcome,
    start,
    wait_until,
)

TRIALS = 6
KILLS = 3
# Seconds that a run of a mode takes at most, and usually.
LONGEST = {"process": 6.0, "partial": 6.0}
USUALLY = 2.0
MANY_ROUNDS = 500


def config(root: Path, *options: str) -> Config:
    """The checked config of a tiny run below root."""
    base = ["debug=tiny", f"output.cache={root}/cache", "output.quiet=true", *options]
    return typed(compose("config", base))


def resumes(root: Path, mode: str, options: Sequence[str]) -> list[str]:
    """Trials of one mode: how many kills met a living run, and how many trials kept every bit."""
    whole = root / mode / "whole"
    if mode != "free":
        finish(config(root, *ROUNDS, *options, f"output.dir={whole}"))
    kept, met = 0, 0
    for trial in range(TRIALS):
        folder = root / mode / f"{trial}"
        resuming = config(root, *ROUNDS, *options, f"output.dir={folder}", "output.resume=true")
        rng = random.Random(f"{mode} {trial}")
        met += len(killed_and_resumed(resuming, LONGEST.get(mode, USUALLY), rng, KILLS))
        if mode == "free":
            whole = root / mode / f"{trial}-replay"
            again = ("mode=recorded", f"mode.schedule={folder}", f"output.dir={whole}")
            finish(config(root, *ROUNDS, *again))
        kept += outcome(folder) == outcome(whole)
    return [mode, str(TRIALS), str(met), str(kept)]


def seconds_until_noticed(what: str, strike: Callable[[int], None]) -> list[str]:
    """Seconds from a generator's failure to the report, and to the error in the trainer."""
    told: list[float] = []
    with generators(hang_seconds=8.0) as (executor, said):
        future = executor.submit(weights(0), demand(0, what))
        time.sleep(1.0)
        struck = time.monotonic()
        strike(executor.pids[0])
        while not future.done():
            if said and not told:
                told.append(time.monotonic() - struck)
            time.sleep(0.01)
        raised = time.monotonic() - struck
        error = type(future.exception()).__name__
    return [error, f"{told[0]:.2f}" if told else f"{raised:.2f}", f"{raised:.2f}"]


def memory(root: Path, mode: str) -> list[str]:
    """Resident megabytes of trainer and generators after 20 rounds and after almost 500."""
    folder = root / "memory" / mode
    options = [
        *MODES[mode],
        f"run.updates={MANY_ROUNDS}",
        "eval.snapshots=0",
        "checkpoint.rounds=50",
    ]
    process = start(config(root, "sft.steps=4", *options, f"output.dir={folder}"))
    assert process.pid is not None
    found = []
    for rounds in (20, MANY_ROUNDS // 2, MANY_ROUNDS - 10):
        wait_until(lambda rounds=rounds: rows_of(folder) >= rounds, 300)  # type: ignore[misc]
        found.append([resident(pid) for pid in (process.pid, *generators_at_work())])
    process.join()
    assert process.exitcode == 0
    return [mode, *(" + ".join(f"{size:.0f}" for size in sizes) for sizes in found)]


def seconds_until_ready() -> list[str]:
    """Seconds until a generator process is ready: with the fork server's imports, and after."""
    taken = []
    for number in range(2):
        generator = GeneratorProcess(
            obedient,
            SharedWeights(weights(0).state, 2),
            number,
            FailurePolicy(OnFailure.stop, 60.0, 0, print),
        )
        began = time.monotonic()
        generator.spawn()
        generator.wait_ready()
        taken.append(f"{time.monotonic() - began:.2f}")
        generator.close()
    return taken


def resident(pid: int) -> float:
    """Megabytes of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    """Exit code 1 if a trial lost a bit."""
    register()
    console = Console(quiet=False)
    modes: dict[str, Any] = MODES | {"free": ("mode=free", "mode.executor=thread")}
    with (
        tempfile.TemporaryDirectory() as name,
        initialize_config_dir(str(conf_folder()), version_base="1.3"),
    ):
        root = Path(name)
        columns = ["first s", "second s"]
        console.table("until a generator is ready", columns, [seconds_until_ready()])
        rows = [resumes(root, mode, options) for mode, options in modes.items()]
        console.table("resume trials", ["mode", "trials", "kills", "same bits"], rows)
        failures = [
            ["killed", *seconds_until_noticed("slow", lambda pid: os.kill(pid, signal.SIGKILL))],
            ["hung", *seconds_until_noticed("hang", lambda _: None)],
            ["stopped", *seconds_until_noticed("slow", lambda pid: os.kill(pid, signal.SIGSTOP))],
            ["raising", *seconds_until_noticed("raise", lambda _: None)],
        ]
        columns = ["generator", "error", "told after s", "raised after s"]
        console.table("failures (mode.hang_seconds=8)", columns, failures)
        sizes = [memory(root, mode) for mode in ("sync", "process")]
        columns = [
            "mode",
            "MB after 20 rounds",
            f"after {MANY_ROUNDS // 2}",
            f"after {MANY_ROUNDS - 10}",
        ]
        console.table("memory (trainer + generators)", columns, sizes)
    return 0 if all(row[1] == row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
