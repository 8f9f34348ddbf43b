"""A rollout worker in a process of its own: started, watched, and started again if need be."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

import torch

from rlhf_lab.rollout.feeds import LatestWeights
from rlhf_lab.rollout.generator_main import serve
from rlhf_lab.rollout.mode import OnFailure
from rlhf_lab.rollout.shared import SharedWeights, shared_zeros
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.memory import count_as_child
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout

NOTICE_SECONDS = 5.0
TRACE_SECONDS = 0.5
# What faulthandler writes of a crash.
CRASHED = "Fatal Python error:"
CRASH_LINES = 12


class GeneratorFailure(RuntimeError):
    """A generator process was killed or hung; the message says which, when and where it was."""


class GeneratorTraceback(Exception):
    """The text of a traceback of another process, as the cause of the error that it sent."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class FailurePolicy:
    """What is done about a generator that fails, and whom to tell."""

    on_failure: OnFailure
    hang_seconds: float
    max_restarts: int
    report: Callable[[str], None]


class GeneratorProcess:
    """`send` hands a chunk over, `receive` waits for the oldest one's rollout.

    `watch` is called every now and then by another thread; it reports a generator that makes no
    progress, and kills one that has made none for too long, which `receive` then notices.
    """

    def __init__(
        self,
        make_worker: Callable[[], RolloutWorker],
        shared: SharedWeights,
        number: int,
        care: FailurePolicy,
    ) -> None:
        self._make_worker = make_worker
        self._shared = shared
        self._number = number
        self._care = care
        self._pulse = shared_zeros((1,), torch.long)
        self._outstanding: deque[tuple[Any, Chunk]] = deque()
        # The trainer hands over, while another thread may be starting the process again.
        self._sending = threading.Lock()
        # Who starts the process again has it, and who looks at it: one that starts is no hang, and
        # to ask for its stack, before it can answer, would kill it.
        self._life = threading.Lock()
        self._seen = (0, time.monotonic())
        self._has_told = False
        self._verdict = ""
        self._is_closing = False
        self.restarts = 0

    def spawn(self) -> None:
        """Start the process; `wait_ready` waits until it has built its worker."""
        ours, theirs = multiprocessing.Pipe()
        descriptor, name = tempfile.mkstemp(prefix="rlhf_lab_generator_")
        self._trace: TextIO = os.fdopen(descriptor, encoding="utf-8", errors="replace")
        self._trace_path = Path(name)
        # Signals reach the whole group; the trainer alone decides when generators end.
        self._process = forkserver.start(
            serve,
            (theirs, self._make_worker, self._shared, self._pulse, name),
            name=f"generator-{self._number}",
            daemon=True,
            is_deaf=True,
        )
        theirs.close()
        self._connection: Connection = ours
        self._verdict = ""

    def wait_ready(self) -> None:
        """Raises what building the worker raised."""
        self._reply()
        self._touch()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, feed: WeightFeed, chunk: Chunk) -> None:
        """Hand a chunk over, with the version that the process shall read."""
        if isinstance(feed, Weights):
            source: Any = feed.version
        elif isinstance(feed, LatestWeights):
            source = feed.per_token
        else:
            raise TypeError(f"{type(feed).__name__} cannot be handed to another process")
        with self._sending:
            if not self._outstanding:
                self._touch()
            self._outstanding.append((source, chunk))
            with contextlib.suppress(OSError):  # a broken pipe is noticed by `receive`
                self._connection.send((source, chunk))

    def receive(self) -> Rollout:
        """The rollout of the chunk that was sent first. Restarts the process if it may."""
        while True:
            try:
                rollout: Rollout = self._reply()
                break
            except Exception as error:
                if self._is_closing or not self._may_restart():
                    raise
                self._restart(error)
        self._outstanding.popleft()
        self._touch()
        return replace(rollout, worker=self._number)

    def _reply(self) -> Any:
        try:
            kind, content = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise GeneratorFailure(self._verdict or self._death()) from error
        if kind == "failed":
            raised, text = content
            raise raised from GeneratorTraceback(text)
        return content

    def _death(self) -> str:
        code = self._process.exitcode
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        return (
            f"generator {self._number} (pid {self.pid}) ended: {how}, {self._doing()}; if the "
            "system killed it for memory, lower generator.chunk_groups or mode.num_generators"
            f"{self._crash()}"
        )

    def _crash(self) -> str:
        """The stack of what crashed the process; nothing if it was not a crash."""
        with contextlib.suppress(OSError, ValueError):  # closed by who closes the generator
            self._trace.seek(0)
            _, mark, stack = self._trace.read().rpartition(CRASHED)
            return "\n".join(["", *(mark + stack).splitlines()[:CRASH_LINES]]) if mark else ""
        return ""

    def _doing(self) -> str:
        if not self._outstanding:
            return "with no chunk at work"
        chunk = self._outstanding[0][1]
        return f"at chunk {chunk.index} of round {chunk.round}"

    def _may_restart(self) -> bool:
        return (
            self._care.on_failure is OnFailure.restart and self.restarts < self._care.max_restarts
        )

    def _restart(self, error: Exception) -> None:
        self.restarts += 1
        detail = "".join(traceback.format_exception(error))
        self._care.report(
            f"generator {self._number} failed and is started again ({self.restarts} of "
            f"{self._care.max_restarts} times); its chunks are generated anew, with the same bits\n"
            f"{detail}"
        )
        with self._sending, self._life:
            self._end_process()
            if self._is_closing:
                raise error
            self.spawn()
            self.wait_ready()
            for source, chunk in self._outstanding:
                self._connection.send((source, chunk))

    def _touch(self) -> None:
        self._seen = (int(self._pulse), time.monotonic())
        self._has_told = False

    def watch(self) -> None:
        """Notice a generator that has work and does not get on with it."""
        if self._life.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._life.release()

    def _look(self) -> None:
        if not self._outstanding or self._verdict:
            return
        if int(self._pulse) != self._seen[0]:
            self._touch()
            return
        stalled = time.monotonic() - self._seen[1]
        if stalled >= min(NOTICE_SECONDS - 2 * TRACE_SECONDS, self._care.hang_seconds):
            self._tell(stalled)
        if stalled >= self._care.hang_seconds:
            self._verdict = (
                f"generator {self._number} (pid {self.pid}) hung {self._doing()}: no progress for "
                f"{stalled:.1f} s (mode.hang_seconds={self._care.hang_seconds})\n{self._last_trace}"
            )
            self._process.kill()

    def _tell(self, stalled: float) -> None:
        if self._has_told:
            return
        self._has_told = True
        self._last_trace = self._stack()
        self._care.report(
            f"generator {self._number} (pid {self.pid}) has made no progress for {stalled:.1f} s "
            f"{self._doing()}; it counts as hung after mode.hang_seconds="
            f"{self._care.hang_seconds}\n{self._last_trace}"
        )

    def _stack(self) -> str:
        """Where the process is, in its own words; empty-handed if it does not run at all."""
        self._trace.seek(0, os.SEEK_END)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR2)
        time.sleep(TRACE_SECONDS)
        text = self._trace.read().strip()
        return text or "no traceback: the process does not answer signals (is it stopped?)"

    def close(self) -> None:
        """End the process at once; a `receive` in another thread raises."""
        self._is_closing = True
        count_as_child(self.pid)
        self._process.kill()
        with self._sending, self._life:
            self._end_process()

    def _end_process(self) -> None:
        self._process.kill()
        self._process.join()
        with contextlib.suppress(OSError):
            self._connection.close()
        self._trace.close()
        self._trace_path.unlink(missing_ok=True)
