"""Runs in processes of their own, which end at a known point or are killed, and what is left."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import tests.support.preloaded  # noqa: F401
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.processes import birth, children
from tests.support.examples import FACTS
from tests.support.forked import Moment, train

# What depends on timing alone.
UNTIMED = ("seconds/", "timing/")


def start(config: Config, moment: Moment | None = None) -> BaseProcess:
    """A run in a process of its own, which may act at a moment."""
    return forkserver.start(train, (config, FACTS, moment), name="trainer")


def killed_at(config: Config, point: str, round_: int) -> None:
    """Run until it kills itself, or a generator kills it, at a point in a round or later."""
    process = start(config, Moment(point, round_))
    process.join()
    assert process.exitcode == -signal.SIGKILL, (point, round_, process.exitcode)


def finish(config: Config) -> None:
    """Run to the end; the config must say output.resume=true to go on with a run."""
    process = start(config)
    process.join()
    assert process.exitcode == 0, f"the run ended with exit code {process.exitcode}"


def kill_after(config: Config, seconds: float) -> bool:
    """Whether the run was still going on when it was killed, with its generators left alone."""
    process = start(config)
    process.join(seconds)
    was_alive = process.is_alive()
    process.kill()
    process.join()
    return was_alive


def outcome(folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Rows of a run without what a clock measured, and the digest of its last weights."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return exact_rows(folder / "metrics.jsonl"), manifest["weights_digest"]


def exact_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSONL file without what a clock measured."""
    return [untimed(json.loads(line)) for line in path.read_text().splitlines()]


def untimed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what a clock measured."""
    return {name: value for name, value in row.items() if not name.startswith(UNTIMED)}


def killed_and_resumed(
    resuming: Config, longest: float, rng: random.Random, kills: int
) -> list[float]:
    """Kill a run at random moments, each time resuming it, then let it finish. Returns the moments
    in seconds at which a kill met a living run."""
    met = []
    for _ in range(kills):
        moment = rng.uniform(0.0, longest)
        if kill_after(resuming, moment):
            met.append(moment)
    finish(resuming)
    return met


def descendants(pid: int) -> list[int]:
    """All processes that one has started, and those that they have."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def comm(pid: int) -> str:
    """What a process is called (Linux); nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def generators_at_work() -> list[int]:
    """Generator processes of all runs that this process has started (Linux)."""
    return [pid for pid in descendants(os.getpid()) if comm(pid).startswith("generator-")]


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    return birth(pid) is not None


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The condition's value once it holds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)
    return value
