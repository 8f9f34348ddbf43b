"""What two processes do with the engines of a run: train, save, restore, and fail.

Children import this module.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.training.engines.broadcast_engine import STOP, BroadcastEngine, follow
from rlhf_lab.training.engines.distributed import FollowerFailed, Processes, join, leave
from rlhf_lab.training.engines.options import SingleEngineOptions
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
from tests.support.two_ranks import Act

# In updates: the first process gets two, and the second one.
GROUPS = 3


def train_alone(folder: Path, algos: Sequence[str] = SPREAD) -> None:
    """What engine=single does in one piece, kept in a folder: two updates, a checkpoint, and a
    third update."""
    for algo in algos:
        alone = engine(SingleEngineOptions(micro_rows=64, logit_tokens=0), algo)
        first = updates(alone, algo, [0, 1], GROUPS)
        held = saved(alone)
        third = updates(alone, algo, [2], GROUPS)
        told = {
            **held,
            "losses": losses([*first, *third]),
            "rows": dict(third[0].rows),
            "norms": [done.metrics["grad_norm"] for done in first],
        }
        torch.save(told, folder / f"single-{algo}.pt")


def engine_acts(names: Sequence[str], algos: Sequence[str] = SPREAD) -> dict[str, Act]:
    """Every algorithm by each of these engines."""
    return {
        f"{name}-{algo}": functools.partial(train_together, name, algo)
        for name in names
        for algo in algos
    }


def train_together(
    name: str, algo: str, processes: Processes, folder: Path
) -> dict[str, Any] | None:
    """Everything that the lead of a run asks of its engine."""
    with rows_of(name):
        own = engine(options_of(name), algo)
        if not processes.is_main:
            follow(own, processes)
            return None
        told = seen(BroadcastEngine(own, processes), algo, torch.load(folder / f"single-{algo}.pt"))
    processes.broadcast_call(STOP)
    return told


def seen(led: Any, algo: str, other: dict[str, Any]) -> dict[str, Any]:
    """Two updates, a checkpoint, a third update; the same third one after another's checkpoint."""
    first = updates(led, algo, [0, 1], GROUPS)
    held = saved(led)
    batch = batch_of(led, algo, 2, GROUPS)
    now = led.weights(2)
    apart = Weights(9, {name: tensor * 0.9 for name, tensor in now.state.items()})
    logps = [led.logp(batch, now), led.logp(batch, apart), led.logp(batch, now)]
    entropy = led.entropy(batch, now)
    after = dict(led.weights(2).state)
    third = updates(led, algo, [2], GROUPS)
    restore(led, other)
    again = updates(led, algo, [2], GROUPS)
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


class Broken:
    """An engine whose updates fail in the last process, while the others wait for it."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def update(self, *given: Any) -> list[Any]:
        if self._processes.rank == self._processes.size - 1:
            raise ValueError("broken on purpose")
        return self._processes.all_gather_object(given)


def fail() -> None:
    """Rank 1 fails in the middle of an update; the lead tells what it got to know of it."""
    processes = join()
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
