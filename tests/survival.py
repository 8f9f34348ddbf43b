"""Runs in processes of their own, which tests kill; and workers that fail in every way."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from examples import FACTS

from rlhf_lab import commands, forkserver
from rlhf_lab.config import Config
from rlhf_lab.main import REQUEUE
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.trackers.console import Console
from rlhf_lab.types import (
    Chunk,
    Example,
    Finish,
    Group,
    Prompt,
    Sample,
    StopRequested,
    WeightFeed,
)

# What depends on timing alone.
UNTIMED = ("seconds/", "timing/")
# Imports are done once, in the server; every run is forked from it.
SERVER: Any = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(forkserver.PRELOAD)


def start(config: Config) -> BaseProcess:
    """A run in a process of its own."""
    process: BaseProcess = SERVER.Process(target=train, args=(config,))
    process.start()
    return process


def train(config: Config) -> None:
    """Exit code 0 if the run finished, REQUEUE if it was asked to stop, 1 if it failed."""
    try:
        commands.train(config, Console(quiet=True), FACTS)
    except StopRequested:
        sys.exit(REQUEUE)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def train_on_a_full_disk(config: Config, largest: int) -> None:
    """The same where no file can grow beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    train(config)


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
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(UNTIMED)} for row in rows]


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
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, found) for each in (child, *descendants(child))]


def comm(pid: int) -> str:
    """What a process is called; nothing if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def generators_at_work() -> list[int]:
    """Generator processes of all runs that this process has started."""
    return [pid for pid in descendants(os.getpid()) if comm(pid).startswith("generator-")]


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The condition's value once it holds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)
    return value


def chunk(number: int) -> Chunk:
    """A chunk of one prompt, whose uid tells a worker below what to do."""
    return demand(number, f"row/{number}")


def demand(number: int, what: str) -> Chunk:
    """A chunk that makes its generator do something."""
    return Chunk(number, 0, (Prompt(number, (1, 2), Example(what, "a", "b")),), 1)


class Obedient:
    """Writes the weights' sum; or does what the prompt says."""

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        weights = feed.at(0)
        what = chunk.prompts[0].example.uid
        if what == "hang":
            hang_here()
        if what == "raise":
            raise ZeroDivisionError("the generator divided by nothing")
        if what == "slow":
            for step in range(1, 60):
                weights = feed.at(step)
                time.sleep(0.05)
        written = sum(float(tensor.sum()) for tensor in weights.state.values())
        sample = Sample((7,), (-0.5,), weights.version, Finish.eos, f"{written}")
        return (Group(chunk.prompts[0], (sample,)),)


class Fair:
    """Everything is worth one."""

    def score(self, groups: tuple[Group, ...]) -> list[tuple[float, ...]]:
        return [(1.0,) for _ in groups]


def hang_here() -> None:
    """For ever, without a sign of progress."""
    time.sleep(3600)


def obedient() -> RolloutWorker:
    return RolloutWorker(Obedient(), Fair(), False)  # type: ignore[arg-type]


def no_worker() -> RolloutWorker:
    raise MemoryError("the model does not fit")
