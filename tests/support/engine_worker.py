"""Run under torchrun: python -m torch.distributed.run ... engine_worker.py FOLDER NAME [NAME ...]

Trains the tiny policy by every named engine, over all processes, and leaves in FOLDER what the lead
saw. In the end the last process fails in the middle of an update.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.training.engines.broadcast_engine import STOP, BroadcastEngine, follow
from rlhf_lab.training.engines.distributed import FollowerFailed, Processes, current, join, leave
from rlhf_lab.types.data import Weights
from tests.support.engine_cases import (
    SPREAD,
    batch_of,
    engine,
    losses,
    options_of,
    restore,
    rows_of,
    saved,
    updates,
)


class Broken:
    """An engine whose updates fail in the last process, while the others wait for it."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def update(self, *given: Any) -> list[Any]:
        if self._processes.rank == self._processes.size - 1:
            raise ValueError("broken on purpose")
        return self._processes.all_gather_object(given)


def lead(folder: Path, names: list[str]) -> None:
    """Everything that the lead of a run asks of its engine, for every engine and algorithm."""
    for name in names:
        for algo in SPREAD:
            current().broadcast_call((name, algo))
            with rows_of(name):
                led = BroadcastEngine(engine(options_of(name), algo), current())
                told = seen(led, algo, torch.load(folder / f"single-{algo}.pt"))
            torch.save(told, folder / f"{name}-{algo}.pt")
            current().broadcast_call(STOP)


def seen(led: Any, algo: str, other: dict[str, Any]) -> dict[str, Any]:
    """Two updates, a checkpoint, a third update; the same third one after another's checkpoint."""
    first = updates(led, algo, [0, 1])
    held = saved(led)
    batch = batch_of(led, algo, 2)
    now = led.weights(2)
    apart = Weights(9, {name: tensor * 0.9 for name, tensor in now.state.items()})
    logps = [led.logp(batch, now), led.logp(batch, apart), led.logp(batch, now)]
    entropy = led.entropy(batch, now)
    after = dict(led.weights(2).state)
    third = updates(led, algo, [2])
    restore(led, other)
    again = updates(led, algo, [2])
    led.move_reference(0.5)
    moved = led.reference_logp(batch)
    is_same = all(torch.equal(after[name], now.state[name]) for name in after)
    return {
        "losses": losses([*first, *third]),
        "restored": losses(again),
        "rows": {name: column for name, column in third[0].rows.items()},
        "norms": [done.metrics["grad_norm"] for done in first],
        "held": held,
        "logps": logps,
        "entropy": entropy,
        "moved": moved,
        "is_untouched": is_same,
        "peak": led.peak_memory(),
    }


def run_worker_rank() -> None:
    """What the other processes do meanwhile."""
    processes = current()
    while (word := processes.broadcast_call(None)) != STOP:
        name, algo = word
        with rows_of(name):
            follow(engine(options_of(name), algo), processes)


def fail(processes: Processes) -> None:
    """The lead tells what it got to know of the other's failure. As in a run, torchrun's signal to
    the survivors does not cut it short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    broken: Any = Broken(processes)
    if not processes.is_main:
        try:
            follow(broken, processes)
        except ValueError as error:
            leave(processes, error)
    try:
        BroadcastEngine(broken, processes).update(*"abcd")
    except FollowerFailed as error:
        sys.stdout.write(str(error))
        sys.stdout.flush()
        leave(processes, None)


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    processes = join()
    if processes.is_main:
        lead(folder, names)
        processes.broadcast_call(STOP)
    else:
        run_worker_rank()
    fail(processes)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
