"""What two processes do with sharded checkpoints. Children import this module."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot, read_optimizer
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.training.engines.broadcast_engine import STOP, BroadcastEngine, follow
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.types.data import Weights
from tests.support.engine_cases import engine, options_of, restore, saved, updates
from tests.support.engine_worker import GROUPS
from tests.support.two_ranks import Act

ALGO = "ppo"


def snapshot(led: Any, round_: int, weights: Weights) -> Snapshot:
    """Of an engine alone."""
    writer = led.sharded()
    return Snapshot(round_, {round_: weights}, {} if writer else led.state(), {}, [], {}, writer)


def newest(folder: Path, say: Callable[[str], None] = print) -> Snapshot:
    """The newest checkpoint, whose queue is empty."""
    chunk: Any = None
    found = Checkpoints(folder, CheckpointOptions()).newest(chunk, say)
    assert found is not None
    return found


def save_alone(folder: Path) -> None:
    """The folder of a run gets a checkpoint of one process, and what that holds."""
    alone = engine(SingleEngineOptions(micro_rows=64, logit_tokens=0), ALGO)
    updates(alone, ALGO, [5], GROUPS)
    weights = alone.weights(1)
    Checkpoints(folder / "single", CheckpointOptions()).save(snapshot(alone, 1, weights))
    torch.save({"weights": dict(weights.state), "state": alone.state()}, folder / "single.pt")


def shards_acts(names: Sequence[str]) -> dict[str, Act]:
    """A checkpoint by each of these engines."""
    return {f"{name}-shards": functools.partial(save_together, name) for name in names}


def save_together(name: str, processes: Processes, folder: Path) -> dict[str, Any] | None:
    """Two updates, a checkpoint by shards with a third update beside it, then the third update
    again from that checkpoint."""
    own = engine(options_of(name), ALGO)
    if not processes.is_main:
        follow(own, processes)
        return None
    led = BroadcastEngine(own, processes)
    told = seen(led, newest(folder / "single"), folder / f"{name}-shards")
    processes.broadcast_call(STOP)
    return told


def seen(led: Any, single: Snapshot, folder: Path) -> dict[str, Any]:
    """Everything that the lead does, the followers following."""
    led.restore(single.weights[1], single.optimizer)
    from_single = saved(led)
    updates(led, ALGO, [0, 1], GROUPS)
    led.move_reference(0.5)
    checkpoints = Checkpoints(folder / "checkpoints", CheckpointOptions())
    weights = led.weights(2)
    checkpoints.save(snapshot(led, 2, weights))
    beside = updates(led, ALGO, [2], GROUPS)
    held = saved(led)
    checkpoints.save(snapshot(led, 3, led.weights(3)))
    checkpoints.finish()
    before = folder / "checkpoints" / "00000002"
    restore(led, {"weights": dict(weights.state), "state": read_optimizer(before)})
    again = updates(led, ALGO, [2], GROUPS)
    return {
        "from_single": from_single,
        "held": held,
        "again": saved(led),
        "losses": [beside[0].metrics["loss"], again[0].metrics["loss"]],
    }
