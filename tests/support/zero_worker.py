"""ZeRO 2 and 3 with bfloat16 passes over float32 masters, in two processes. Children import this
module."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.training.engines.broadcast_engine import STOP, BroadcastEngine, follow
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.options import DeepSpeedOptions
from rlhf_lab.types.precision import Precision
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
from tests.support.two_ranks import Act

STAGES = (2, 3)
ALGO = "online_dpo"
SMALL_RATE = 3e-6


def zero_acts() -> dict[str, Act]:
    """Each stage."""
    return {f"stage{stage}": functools.partial(train_together, stage) for stage in STAGES}


def begun(stage: int) -> Any:
    """The engine of this process."""
    options = DeepSpeedOptions(stage=stage, dtype=Precision.bfloat16, micro_rows=2, logit_tokens=4)
    return engine(options, ALGO, policy().bfloat16())


def train_together(stage: int, processes: Processes, folder: Path) -> dict[str, Any] | None:
    """A small step, larger ones on one batch, a checkpoint that a fresh engine goes on from."""
    if not processes.is_main:
        for _ in range(2):
            follow(begun(stage), processes)
        return None
    first: Any = BroadcastEngine(begun(stage), processes)
    start = saved(first)
    batch = batch_of(first, ALGO, 0)
    first.update(batch, ALGOS[ALGO], NoCorrection(), SMALL_RATE)
    small = saved(first)
    learned = updates(first, ALGO, [0] * 6)
    held = saved(first)
    third = updates(first, ALGO, [2])
    after = saved(first)
    processes.broadcast_call(STOP)
    again: Any = BroadcastEngine(begun(stage), processes)
    restore(again, held)
    restored = saved(again)
    fourth = updates(again, ALGO, [2])
    told = {
        "start": start,
        "small": small,
        "learned": losses(learned),
        "held": held,
        "restored": restored,
        "losses": [losses(third), losses(fourth)],
        "after": [after, saved(again)],
    }
    processes.broadcast_call(STOP)
    return told
