"""Run under torchrun: python -m torch.distributed.run ... shards_worker.py FOLDER NAME [NAME ...]

Two updates by each named engine, a checkpoint by shards with a third update beside it, then the
third update again from that checkpoint. Leaves in FOLDER/NAME what the lead saw.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.training.checkpoint import Checkpoints
from rlhf_lab.training.checkpoint_files import Snapshot
from rlhf_lab.training.checkpoint_optimizer import read_optimizer
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.training.engines.broadcast_engine import STOP, BroadcastEngine, follow
from rlhf_lab.training.engines.distributed import current, join, leave
from rlhf_lab.types.data import Weights
from tests.support.engine_cases import engine, options_of, restore, saved, updates

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


def lead(folder: Path, name: str) -> None:
    """Everything that the lead does, the followers following."""
    led = BroadcastEngine(engine(options_of(name), ALGO), current())
    single = newest(folder / "single")
    folder = folder / name
    led.restore(single.weights[1], single.optimizer)
    from_single = saved(led)
    updates(led, ALGO, [0, 1])
    led.move_reference(0.5)
    checkpoints = Checkpoints(folder / "checkpoints", CheckpointOptions())
    weights = led.weights(2)
    checkpoints.save(snapshot(led, 2, weights))
    beside = updates(led, ALGO, [2])
    held = saved(led)
    checkpoints.save(snapshot(led, 3, led.weights(3)))
    checkpoints.finish()
    before = folder / "checkpoints" / "00000002"
    restore(led, {"weights": dict(weights.state), "state": read_optimizer(before)})
    again = updates(led, ALGO, [2])
    torch.save(
        {
            "from_single": from_single,
            "held": held,
            "again": saved(led),
            "losses": [beside[0].metrics["loss"], again[0].metrics["loss"]],
        },
        folder / "seen.pt",
    )
    led.processes.broadcast_call(STOP)


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    processes = join()
    for name in names:
        if processes.is_main:
            lead(folder, name)
        else:
            follow(engine(options_of(name), ALGO), processes)
    if not processes.is_main:
        leave(processes, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
