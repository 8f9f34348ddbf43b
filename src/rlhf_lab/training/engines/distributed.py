"""The processes of one run under torchrun: rank 0 runs everything, worker ranks follow it.

Worker ranks wait for the next broadcast call, for hours if need be. All stay connected, so that
each side notices when the other dies; `liveness` notices a machine that vanishes. A process without
torchrun is rank 0 of one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from socket import gethostname
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from rlhf_lab.training.engines.ranks import declared, forget, record_joined, world_size

KEY = "rlhf_lab/alive"
BEAT_SECONDS = 5.0
# Far longer than a process is kept from counting by work that holds Python's lock.
SILENCE_SECONDS = 600.0
STORE_TIMEOUT = timedelta(seconds=60)
# How long `stop` waits for an answer of the store that is under way.
STOP_SECONDS = 10.0
# How long a worker rank waits for the next call: stages before the training take hours.
PATIENCE = timedelta(days=30)
# How long a process waits within a call, where all ranks do the same: gloo's default, and longer
# than a checkpoint of a large model takes.
WITHIN_CALL = timedelta(minutes=30)
# Seconds for which rank 0 looks for the traceback of a rank whose connection broke.
SEARCH = 5.0
LOST = ("connection closed", "connection reset", "broken pipe", "timed out", "gloo")
FAILURE = "rlhf_lab/failure"


def end_worker(message: str) -> None:
    """End a worker rank whose rank 0 has disappeared."""
    report(message)
    os._exit(1)


def report(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


@dataclass
class Liveness:
    """Counts for this process and watches others: rank 0 all ranks, the others rank 0.

    store: of the group, shared by all ranks. silence: seconds without a count after which
    `on_silence` is called, once, with a message that names the processes.
    """

    store: Any
    rank: int
    size: int
    on_silence: Callable[[str], None]
    beat: float = BEAT_SECONDS
    silence: float = SILENCE_SECONDS
    _seen: dict[int, tuple[bytes, float]] = field(default_factory=dict, init=False)
    _end: threading.Event = field(default_factory=threading.Event, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)

    def start(self) -> None:
        others = range(1, self.size) if self.rank == 0 else range(1)
        self._seen = {other: (b"", time.monotonic()) for other in others}
        # Two threads: the store may be on the machine that is lost, and never answer.
        for work in (self._count, self._watch):
            thread = threading.Thread(target=work, name=work.__name__, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Neither count nor watch any more. Returns when both threads have ended, or the store did
        not answer in time: a thread that asks the store while Python ends aborts the process."""
        self._end.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _count(self) -> None:
        number = 0
        # The store ends with its process; the silence that follows is noticed by `_watch`.
        with contextlib.suppress(RuntimeError):
            while True:
                self.store.set(f"{KEY}/{self.rank}", f"{gethostname()} {number}")
                for other, (before, _) in list(self._seen.items()):
                    key = f"{KEY}/{other}"
                    value = self.store.get(key) if self.store.check([key]) else b""
                    if value != before:
                        self._seen[other] = (value, time.monotonic())
                number += 1
                if self._end.wait(self.beat):
                    return

    def _watch(self) -> None:
        while not self._end.wait(self.beat):
            if message := self.silent(self.silence):
                self.on_silence(message)
                return

    def silent(self, seconds: float) -> str:
        """The processes that have not counted for so many seconds; empty if all have."""
        now = time.monotonic()
        return "; ".join(
            f"process {other} of {self.size} ({value.decode().partition(' ')[0] or 'unknown host'})"
            f" has given no sign of life for {now - since:.0f} s: was it killed, or its machine "
            "lost?"
            for other, (value, since) in self._seen.items()
            if now - since > seconds
        )

    def lost(self) -> str:
        """The processes that do not count now, after a wait of three counts."""
        self._end.wait(3 * self.beat)
        return self.silent(2.5 * self.beat)


def watched(store: Any, rank: int, size: int) -> Liveness:
    """Count and watch from now on, over a connection of its own."""
    own = store.clone()
    own.set_timeout(STORE_TIMEOUT)
    action = report if rank == 0 else end_worker
    found = Liveness(own, rank, size, action, BEAT_SECONDS, SILENCE_SECONDS)
    found.start()
    return found


class FollowerFailed(RuntimeError):
    """Another process of the run failed; the message holds its traceback."""


@dataclass
class Processes:
    """The process group. All ranks must call the collective methods together.

    local_rank: number of this process on its host. group: of gloo, for objects and tensors in host
    memory; calls: the same for the next call, which may be long in coming. is_broken: an error
    interrupted a call, so other ranks may no longer listen.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: Any = None
    store: Any = None
    calls: Any = None
    liveness: Liveness | None = None
    is_broken: bool = field(default=False, init=False)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def broadcast_object(self, value: Any) -> Any:
        """Rank 0's value, on every rank, within a call."""
        return self._broadcast(value, self.group)

    def broadcast_call(self, value: Any) -> Any:
        """Rank 0's next call, on every rank; the others wait for it for days."""
        return self._broadcast(value, self.calls)

    def _broadcast(self, value: Any, group: Any) -> Any:
        if self.size == 1:
            return value
        box = [value if self.is_main else None]
        dist.broadcast_object_list(box, src=0, group=group)
        return box[0]

    def all_gather_object(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank."""
        if self.size == 1:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value, group=self.group)
        return box

    def broadcast_tensors(self, state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Rank 0's tensors, one by one, in host memory unless it is the only rank; the `state` of
        other ranks is not used."""
        if self.size == 1:
            yield from ((name, tensor.detach()) for name, tensor in state.items())
            return
        layout = self.broadcast_object([(name, t.shape, t.dtype) for name, t in state.items()])
        for name, shape, dtype in layout:
            if self.is_main:
                tensor = state[name].detach().cpu().contiguous()
            else:
                tensor = torch.empty(shape, dtype=dtype)
            dist.broadcast(tensor, src=0, group=self.group)
            yield name, tensor

    def report(self, error: BaseException) -> None:
        """Store the traceback with which this process ends, for rank 0 to read."""
        self.store.set(f"{FAILURE}/{self.rank}", "".join(traceback.format_exception(error)))

    def failure(self, seconds: float = SEARCH) -> str | None:
        """The traceback that a failed worker rank stored; None if there is none."""
        if self.store is None:
            return None
        until = time.monotonic() + seconds
        while True:
            for rank in range(1, self.size):
                if self.store.check([f"{FAILURE}/{rank}"]):
                    text = self.store.get(f"{FAILURE}/{rank}").decode()
                    return f"process {rank} of {self.size} failed:\n{text}"
            if time.monotonic() > until:
                return None
            time.sleep(0.1)


_joined = Processes()


def current() -> Processes:
    """The process group that this process has joined; a group of one before that."""
    return _joined


def join() -> Processes:
    """Join the process group; returns when all processes have joined."""
    global _joined
    local = declared("LOCAL_RANK", 0)
    has_devices = torch.cuda.is_available()
    # Ranks that train on CPUs may be more than this host has GPUs.
    if has_devices and local < torch.cuda.device_count():
        torch.cuda.set_device(local)
    store, number, size = next(rendezvous("env://", timeout=PATIENCE))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if has_devices else "gloo",
        store=dist.PrefixStore("rlhf_lab/group", store),  # type: ignore[attr-defined]
        rank=number,
        world_size=size,
    )
    group = dist.new_group(backend="gloo", timeout=WITHIN_CALL)
    calls = dist.new_group(backend="gloo", timeout=PATIENCE if number else WITHIN_CALL)
    liveness = watched(store, number, size) if size > 1 else None
    _joined = Processes(number, size, local, group, store, calls, liveness)
    if size > 1:
        record_joined(number, size)
    forget()
    return _joined


def require_group() -> None:
    """A torch process group, of one process if need be: FSDP and DeepSpeed require one."""
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)


@contextlib.contextmanager
def main_rank(stop: Any) -> Iterator[None]:
    """Join as rank 0 for the block, then broadcast `stop` to end the worker ranks."""
    if world_size() == 1:
        yield
        return
    processes = join()
    try:
        yield
    except BaseException:
        # torchrun terminates the survivors of a failure; rank 0 must live to report the reason.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    finally:
        if processes.liveness:
            processes.liveness.stop()
        if not processes.is_broken:
            processes.broadcast_call(stop)


@contextlib.contextmanager
def together(processes: Processes) -> Iterator[None]:
    """A context for collective calls: if another rank failed, its traceback is raised."""
    try:
        yield
    except BaseException as error:
        processes.is_broken = processes.size > 1
        if is_lost(error) and (reason := processes.failure()):
            raise FollowerFailed(reason) from error
        if is_lost(error):
            silent = processes.liveness.lost() if processes.liveness else ""
            error.add_note(f"another process of the run ended without a traceback: {silent}")
        raise


def is_lost(error: BaseException) -> bool:
    """Whether an error means that a connection to another process is lost."""
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in LOST)


def leave(processes: Processes, error: BaseException | None) -> NoReturn:
    """End a worker rank; an error is stored for rank 0, which alone reports."""
    if error is not None and not is_lost(error):
        with contextlib.suppress(RuntimeError):  # the store may have ended with rank 0
            processes.report(error)
    # At once, so that ranks waiting for this one see its connections close.
    os._exit(0 if error is None else 1)
