"""What tests run in processes of their own: runs that end at a known point, and failing workers.

Children import this module, so it imports nothing that the fork server has not."""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, current_process, parent_process
from pathlib import Path
from typing import Any

from rlhf_lab.cli import exit_codes, main
from rlhf_lab.experiment.build import rollout as build_rollout
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs import disk
from rlhf_lab.runs.jsonl import JsonlTracker
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training import checkpoint_files
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.types.errors import StopRequested
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample


@dataclass(frozen=True)
class Moment:
    """What a run does when it first comes to a point in a round, or in a later one.

    point: of POINTS. act: a signal that it sends to itself, or a function of this module.
    """

    point: str
    round: int
    act: int | Callable[[], None] = signal.SIGKILL


# Phases of the loop; `take 2` hands over the next chunks, when the round is trained on.
PHASES = (
    *("take", "reference", "update", "update 2", "sync", "take 2"),
    *("probe", "track", "save", "checkpoint"),
)
# Between and within them; "log" comes between the rows of one round in different files.
WITHIN = ("generate", "score", "restore", "log", "file saved", "before the seal", "sealed")
# What does not depend on the mode.
BESIDES = ("half a row", "policy", "evaluate")


def train(config: Config, facts: Mapping[str, Any], moment: Moment | None = None) -> None:
    """Exit code 0 if the run finished, REQUEUE if it was asked to stop, INTERRUPTED at Ctrl-C, 1 if
    it failed."""
    if moment is not None:
        Watch(moment).begin()
    try:
        lifecycle.train(config, Console(quiet=True), facts)
    except StopRequested:
        sys.exit(exit_codes.REQUEUE)
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def train_on_a_full_disk(config: Config, facts: Mapping[str, Any], largest: int) -> None:
    """The same where no file can grow beyond so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    train(config, facts)


def command(words: Sequence[str], log: str, moment: Moment | None = None) -> None:
    """`rlhf-lab WORDS`, writing to a log."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if moment is not None:
        Watch(moment).begin()
    sys.argv = ["rlhf-lab", *words]
    sys.exit(main.command_line())


def group_command(words: Sequence[str], log: str, moment: Moment | None = None) -> None:
    """The same as the first process of a group, as a shell starts it."""
    os.setpgid(0, 0)
    command(words, log, moment)


class Watch:
    """Acts at the moment, once."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self._round = 0
        self._entries: dict[tuple[str, int], int] = {}
        self._is_over = False

    def reached(self, point: str, round_: int | None = None) -> None:
        """The run, or a generator of it, has come here. Without a round: in the present one."""
        here = self._round if round_ is None else round_
        if self._is_over or point != self._moment.point or here < self._moment.round:
            return
        self._is_over = True
        act = self._moment.act
        if not isinstance(act, int):
            act()
            return
        # A generator ends its trainer, and with it itself.
        trainer = parent_process() if in_generator() else None
        os.kill(trainer.pid if trainer and trainer.pid else os.getpid(), act)
        if in_generator():
            time.sleep(3600)

    def begin(self) -> None:
        """Look at everything that a run does in this process, and in its generators."""
        self._wrap_phases()
        self._before(JsonlTracker, "log", lambda *a: self.reached("log"))
        self._before(JsonlTracker, "log", self._half_a_row)
        self._before(Pipeline, "restore", lambda *a: self.reached("restore", self._moment.round))
        for saves in ("save_policy", "save_adapters"):
            self._before(lifecycle, saves, lambda *a: self.reached("policy"))
        self._before(lifecycle, "evaluate_run", lambda *a: self.reached("evaluate"))
        self._after(checkpoint_files, "write_version", lambda *a: self.reached("file saved"))
        self._after(disk, "flush", self._flushed)
        self.look_at_worker()
        watched = functools.partial(watched_worker, self._moment)
        build_rollout.build_worker = build_rollout.build_alone = watched

    def look_at_worker(self) -> None:
        """Look at what generates, in whatever process."""
        self._before(RolloutWorker, "run", lambda w, f, c, *a: self.reached("generate", c.round))
        self._before(
            RolloutWorker, "_scored", lambda w, r, *a: self.reached("score", r.chunk.round)
        )

    def _wrap_phases(self) -> None:
        real = Ledger.span

        @contextmanager
        def span(ledger: Ledger, phase: str, round_: int, version: int) -> Iterator[None]:
            self._round = round_
            entry = self._entries[phase, round_] = self._entries.get((phase, round_), 0) + 1
            with real(ledger, phase, round_, version):
                self.reached(phase if entry == 1 else f"{phase} {entry}")
                yield

        Ledger.span = span  # type: ignore[method-assign, assignment]

    def _half_a_row(self, tracker: JsonlTracker, *_: Any) -> None:
        if self._moment.point == "half a row" and self._round >= self._moment.round:
            tracker._file.open().write(b'{"step": ')
        self.reached("half a row")

    def _flushed(self, path: Path) -> None:
        if path.name == disk.ENTRY:
            self.reached("before the seal")
        elif path.name == "checkpoints":
            self.reached("sealed")

    def _before(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            look(*args)
            return real(*args, **named)

        setattr(owner, name, call)

    def _after(self, owner: Any, name: str, look: Callable[..., None]) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            result = real(*args, **named)
            look(*args)
            return result

        setattr(owner, name, call)


real_build_worker = build_rollout.build_worker


def watched_worker(moment: Moment, *given: Any) -> RolloutWorker:
    """A rollout worker whose generator process looks out for the moment too."""
    if in_generator():
        Watch(moment).look_at_worker()
    return real_build_worker(*given)


def in_generator() -> bool:
    return current_process().name.startswith("generator-")


def own_generators() -> list[int]:
    """Generator processes of the run in this process."""
    return [p.pid for p in active_children() if p.name.startswith("generator-") and p.pid]


@dataclass(frozen=True)
class Note:
    """An act: write down the generators, then send a signal to them or to oneself, or stay."""

    path: Path
    number: int = 0
    is_for_generators: bool = False

    def __call__(self) -> None:
        generators = own_generators()
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(generators))
        draft.rename(self.path)
        if not self.number:
            time.sleep(3600)
        for pid in generators if self.is_for_generators else [os.getpid()]:
            os.kill(pid, self.number)


@dataclass(frozen=True)
class Press:
    """An act: Ctrl-C, as a terminal sends it to the process and to its generators."""

    path: Path
    times: int

    def __call__(self) -> None:
        generators = own_generators()
        self.path.write_text(json.dumps(generators))
        for _ in range(self.times):
            for pid in generators:
                os.kill(pid, signal.SIGINT)
            os.killpg(0, signal.SIGINT)


def chunk(number: int) -> Chunk:
    """A chunk of one prompt, whose uid tells a worker below what to do."""
    return demand(number, f"row/{number}")


def demand(number: int, what: str) -> Chunk:
    """A chunk that makes its generator do something."""
    return Chunk(number, 0, (Prompt(number, (1, 2), Example(what, "a", "b")),), 1)


class Obedient(Generator):
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


class Fair(Reward):
    """Everything is worth one."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [(1.0,) for _ in groups]


def hang_here() -> None:
    """For ever, without a sign of progress."""
    time.sleep(3600)


def obedient() -> RolloutWorker:
    return RolloutWorker(Obedient(), Fair(), False)


def no_worker() -> RolloutWorker:
    raise MemoryError("the model does not fit")
