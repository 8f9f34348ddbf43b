"""The processes of one run under torchrun: one leads, the others follow.

The lead runs everything; the others wait for its word, for hours if need be, and take part in what
only all of them can do. Between two words they are connected, so that either side notices the
other's death. A process that was started alone is a lead without followers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

# How long a follower waits for the lead's next word: stages before the training take hours.
PATIENCE = timedelta(days=30)
# How long the lead looks for the reason of a follower whose connection broke, in seconds.
SEARCH = 5.0
# What torchrun sets; children of the lead must not take themselves for members of the group.
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
LOST = ("connection closed", "connection reset", "broken pipe", "timed out", "gloo")
FAILURE = "rlhf_lab/failure"


class FollowerFailed(RuntimeError):
    """Another process of the run failed; the message holds its traceback."""


@dataclass
class Processes:
    """This process and the others. All methods but the properties are called by all of them.

    local_rank: number of this process on its host. group: for words and tensors on the host.
    is_broken: an error came while the others were at work, so they may no longer listen.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: Any = None
    store: Any = None
    is_broken: bool = field(default=False, init=False)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def broadcast_object(self, value: Any) -> Any:
        """The lead's value, whatever the others hold."""
        if self.size == 1:
            return value
        box = [value if self.is_main else None]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def all_gather_object(self, value: Any) -> list[Any]:
        """Everyone's value, by rank."""
        if self.size == 1:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value, group=self.group)
        return box

    def broadcast_tensors(self, state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """The lead's tensors one after the other, on the host; of the others' state nothing."""
        layout = self.broadcast_object([(name, t.shape, t.dtype) for name, t in state.items()])
        for name, shape, dtype in layout:
            if self.is_main:
                tensor = state[name].detach().cpu().contiguous()
            else:
                tensor = torch.empty(shape, dtype=dtype)
            if self.size > 1:
                dist.broadcast(tensor, src=0, group=self.group)
            yield name, tensor

    def report(self, error: BaseException) -> None:
        """Leave the reason of this process's end where the lead looks for it."""
        self.store.set(f"{FAILURE}/{self.rank}", "".join(traceback.format_exception(error)))

    def failure(self, seconds: float = SEARCH) -> str | None:
        """The traceback that a follower left, if one did."""
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
    """What this process has joined; itself alone before that."""
    return _joined


def world_size() -> int:
    """Processes that torchrun started for this run, 1 without it."""
    return _joined.size if _joined.size > 1 else int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """This process's number among them, 0 without torchrun."""
    return _joined.rank if _joined.size > 1 else int(os.environ.get("RANK", "0"))


def join() -> Processes:
    """Meet the other processes. Returns when all have come."""
    global _joined
    local = int(os.environ.get("LOCAL_RANK", "0"))
    has_devices = torch.cuda.is_available()
    if has_devices:
        torch.cuda.set_device(local)
    store, number, size = next(rendezvous("env://", timeout=PATIENCE))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if has_devices else "gloo",
        store=dist.PrefixStore("rlhf_lab/group", store),  # type: ignore[attr-defined]
        rank=number,
        world_size=size,
    )
    group = dist.new_group(backend="gloo", timeout=PATIENCE)
    _joined = Processes(number, size, local, group, store)
    for name in VARIABLES:
        os.environ.pop(name, None)
    return _joined


def require_group() -> None:
    """A group for libraries that ask for one, also where this process is alone."""
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)


@contextlib.contextmanager
def main_rank(stop: Any) -> Iterator[None]:
    """Join as the lead while the block runs, then send the followers home with the word `stop`."""
    if world_size() == 1:
        yield
        return
    processes = join()
    try:
        yield
    except BaseException:
        # torchrun ends the survivors of a failure; this one ends by itself and has to say why.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise
    finally:
        if not processes.is_broken:
            processes.broadcast_object(stop)


@contextlib.contextmanager
def together(processes: Processes) -> Iterator[None]:
    """Around what all processes do: if another one failed, its reason is raised."""
    try:
        yield
    except BaseException as error:
        processes.is_broken = processes.size > 1
        if is_lost(error) and (reason := processes.failure()):
            raise FollowerFailed(reason) from error
        if is_lost(error):
            error.add_note("another process of the run ended without a word: was it killed?")
        raise


def is_lost(error: BaseException) -> bool:
    """Whether an error means that another process is gone."""
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in LOST)


def leave(processes: Processes, error: BaseException | None) -> NoReturn:
    """End a follower; with an error its reason is left for the lead, which alone speaks."""
    if error is not None and not is_lost(error):
        with contextlib.suppress(RuntimeError):  # the store may be gone with the lead
            processes.report(error)
    # At once: what waits for this process must see its connections close.
    os._exit(0 if error is None else 1)
