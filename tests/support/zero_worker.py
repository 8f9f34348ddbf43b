"""Run under torchrun: python -m torch.distributed.run ... zero_worker.py FOLDER

ZeRO 2 and 3 with bfloat16 passes over float32 masters. Leaves in FOLDER what the lead saw of each.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.algos.corrections.none import NoCorrection
from rlhf_lab.training.engines.broadcast_engine import STOP, BroadcastEngine, follow
from rlhf_lab.training.engines.distributed import current, join, leave
from rlhf_lab.training.engines.options import DeepSpeedOptions, Precision
from tests.support.engine_cases import (
    ALGOS,
    batch_of,
    engine,
    losses,
    policy,
    restore,
    saved,
    updates,
)

STAGES = (2, 3)
ALGO = "online_dpo"
SMALL_RATE = 3e-6


def begun(stage: int) -> Any:
    """The engine of this process."""
    options = DeepSpeedOptions(stage=stage, dtype=Precision.bfloat16, micro_rows=2, logit_tokens=4)
    return engine(options, ALGO, policy().bfloat16())


def lead(folder: Path) -> None:
    """A small step, larger ones on one batch, a checkpoint that a fresh engine goes on from."""
    for stage in STAGES:
        first = led(stage)
        start = saved(first)
        batch = batch_of(first, ALGO, 0)
        first.update(batch, ALGOS[ALGO], NoCorrection(), SMALL_RATE)
        small = saved(first)
        learned = updates(first, ALGO, [0] * 6)
        held = saved(first)
        third = updates(first, ALGO, [2])
        after = saved(first)
        current().broadcast_call(STOP)
        again = led(stage)
        restore(again, held)
        restored = saved(again)
        fourth = updates(again, ALGO, [2])
        seen = {
            "start": start,
            "small": small,
            "learned": losses(learned),
            "held": held,
            "restored": restored,
            "losses": [losses(third), losses(fourth)],
            "after": [after, saved(again)],
        }
        torch.save(seen, folder / f"stage{stage}.pt")
        current().broadcast_call(STOP)


def led(stage: int) -> Any:
    """The lead's engine; the others build theirs."""
    return BroadcastEngine(begun(stage), current())


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    processes = join()
    if processes.is_main:
        lead(folder)
        return
    for stage in STAGES:
        for _ in range(2):
            follow(begun(stage), processes)
    # As worker ranks of a run do: a thread that still runs at the interpreter's end aborts it.
    leave(processes, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
