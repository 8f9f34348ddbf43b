"""A rollout worker in a child process: started, watched for hangs, and restarted after failures."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from rlhf_lab.rollout.feeds import source_of
from rlhf_lab.rollout.generator_main import StackFile, serve
from rlhf_lab.rollout.mode import OnFailure
from rlhf_lab.rollout.shared import Progress, SharedWeights
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.child import RemoteTraceback, exit_text
from rlhf_lab.runs.memory import count_as_child
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, Rollout


class GeneratorFailure(RuntimeError):
    """A generator process was killed or hung: the message names it and the chunk at work."""


@dataclass(frozen=True)
class FailurePolicy:
    """Whether a generator that fails is restarted, and where failures are reported."""

    on_failure: OnFailure
    hang_seconds: float
    max_restarts: int
    report: Callable[[str], None]

    def may_restart(self, restarts: int) -> bool:
        """Whether a generator may be restarted after so many restarts."""
        return self.on_failure is OnFailure.restart and restarts < self.max_restarts

    def report_restart(self, number: int, restarts: int, error: Exception) -> None:
        """Tell that a generator is restarted for the `restarts`-th time, and why."""
        detail = "".join(traceback.format_exception(error))
        self.report(
            f"generator {number} failed and is started again ({restarts} of "
            f"{self.max_restarts} times); its chunks are generated anew, with the same bits\n"
            f"{detail}"
        )


NOTICE_SECONDS = 5.0


class GeneratorProcess:
    """`send` passes a chunk to the process, `receive` waits for the rollout of the oldest one.

    Another thread calls `watch` at intervals, which reports a generator that makes no progress, and
    kills it after `hang_seconds`; `receive` then notices.
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
        self._progress = Progress()
        self._outstanding: deque[tuple[Any, Chunk]] = deque()
        # The trainer sends chunks, while another thread may be restarting the process.
        self._sending = threading.Lock()
        # Held while the process is restarted or watched: a process that starts does not hang, and
        # the signal for its stack would kill it.
        self._life = threading.Lock()
        self._hang = ""
        self._is_closing = False
        self.restarts = 0

    def spawn(self) -> None:
        """Start the process; `wait_ready` waits until it has built its worker."""
        ours, theirs = multiprocessing.Pipe()
        self._stacks = StackFile()
        # Signals reach the whole group; the trainer alone decides when generators end.
        self._process = forkserver.start(
            serve,
            (
                theirs,
                self._make_worker,
                self._shared,
                self._progress.counter,
                self._stacks.path,
            ),
            name=f"generator-{self._number}",
            daemon=True,
            ignores_signals=True,
        )
        theirs.close()
        self._connection: Connection = ours
        self._hang = ""

    def wait_ready(self) -> tuple[str, ...]:
        """Raises what building the worker raised."""
        notes: tuple[str, ...] = self._reply()
        self._progress.restart()
        return notes

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, feed: WeightFeed, chunk: Chunk) -> None:
        """Send a chunk, with the weight version that the process must read."""
        source = source_of(feed)
        with self._sending:
            if not self._outstanding:
                self._progress.restart()
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
                if self._is_closing or not self._care.may_restart(self.restarts):
                    raise
                self._restart(error)
        self._outstanding.popleft()
        self._progress.restart()
        return replace(rollout, worker=self._number)

    def _reply(self) -> Any:
        try:
            kind, content = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise GeneratorFailure(self._hang or self._death()) from error
        if kind == "failed":
            remote_error, text = content
            raise remote_error from RemoteTraceback(text)
        return content

    def _name(self) -> str:
        return f"generator {self._number} (pid {self.pid})"

    def _death(self) -> str:
        return (
            f"{self._name()} ended: {exit_text(self._process.exitcode)}, {self._activity()}; if "
            "the system killed it for memory, lower generator.chunk_groups or mode.num_generators"
            f"{self._stacks.crash()}"
        )

    def _activity(self) -> str:
        if not self._outstanding:
            return "with no chunk at work"
        chunk = self._outstanding[0][1]
        return f"at chunk {chunk.index} of round {chunk.round}"

    def _restart(self, error: Exception) -> None:
        self.restarts += 1
        self._care.report_restart(self._number, self.restarts, error)
        with self._sending, self._life:
            self._end_process()
            if self._is_closing:
                raise error
            self.spawn()
            try:
                self.wait_ready()
            except Exception as again:
                again.add_note(f"{self._name()} could not be started again after: {error}")
                raise
            for source, chunk in self._outstanding:
                self._connection.send((source, chunk))

    def watch(self) -> None:
        """Notice a generator that has work and makes no progress."""
        if self._life.acquire(blocking=False):
            try:
                self._check_progress()
            finally:
                self._life.release()

    def _check_progress(self) -> None:
        if not self._outstanding or self._hang:
            return
        stalled, limit = self._progress.stalled_seconds(), self._care.hang_seconds
        if stalled >= min(NOTICE_SECONDS - 2 * StackFile.answer_seconds, limit):
            self._report_stall(stalled)
        if stalled >= limit:
            self._hang = (
                f"{self._name()} hung {self._activity()}: no progress for {stalled:.1f} s "
                f"(mode.hang_seconds={limit})\n{self._last_stack}"
            )
            self._process.kill()

    def _report_stall(self, stalled: float) -> None:
        if self._progress.is_reported:
            return
        self._progress.is_reported = True
        self._last_stack = self._stacks.current(self.pid)
        self._care.report(
            f"{self._name()} has made no progress for {stalled:.1f} s {self._activity()}; it "
            f"counts as hung after mode.hang_seconds={self._care.hang_seconds}\n{self._last_stack}"
        )

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
        self._stacks.close()
