"""The optimizer's settings and the learning rate of every update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits


class Schedule(StrEnum):
    """Shape of the learning rate over a run."""

    constant = "constant"
    linear = "linear"
    cosine = "cosine"


class Per(StrEnum):
    """What moves the schedule on: each optimizer update, or each round (the paper's code)."""

    update = "update"
    round = "round"


@dataclass(frozen=True)
class Optim(limits.Limited, key="optim"):
    """AdamW. Defaults are the paper's for Pythia on TL;DR (arXiv:2410.18252, table of TL;DR).

    schedule_per=round repeats the published code, in which the last round trains at rate zero, so
    a large N also means a smaller learning-rate budget; the default does not mix the two.
    """

    lr: float = limits.number(3e-6, above=0, below=1)
    beta1: float = limits.number(0.9, least=0, below=1)
    beta2: float = limits.number(0.999, least=0, below=1)
    eps: float = limits.number(1e-8, least=1e-30, most=1)
    weight_decay: float = limits.number(0.0, least=0, most=1000)
    max_grad_norm: float = limits.number(1.0, above=0, most=1e9)
    warmup_updates: int = limits.count(0, least=0)
    schedule: Schedule = Schedule.linear
    schedule_per: Per = Per.update

    def learning_rate(self, update: int, round_: int, num_updates: int, num_rounds: int) -> float:
        """Rate of update number `update` (from 0) in round `round_` (from 0)."""
        done = (round_ + 1) / num_rounds if self.schedule_per is Per.round else update / num_updates
        warm = min(1.0, (update + 1) / (self.warmup_updates + 1))
        return self.lr * warm * decay(self.schedule, done)


def decay(schedule: Schedule, done: float) -> float:
    """Multiplier of the learning rate when a share `done` of the run is over."""
    if schedule is Schedule.linear:
        return 1.0 - done
    if schedule is Schedule.cosine:
        return 0.5 * (1.0 + math.cos(math.pi * done))
    return 1.0


def one_cycle(step: int, num_steps: int, warm: float = 0.1) -> float:
    """Multiplier for supervised stages: linear up over a share `warm`, then cosine to zero."""
    up = max(1, int(num_steps * warm))
    if step < up:
        return (step + 1) / up
    return decay(Schedule.cosine, (step - up) / max(1, num_steps - up))
