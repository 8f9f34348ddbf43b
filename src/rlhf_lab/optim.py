"""The optimizer's settings and the learning rate of every update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import UserError


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
class Optim:
    """AdamW. Defaults are the paper's for Pythia on TL;DR (arXiv:2410.18252, table of TL;DR).

    schedule_per=round repeats the published code, in which the last round trains at rate zero, so
    a large N also means a smaller learning-rate budget; the default does not mix the two.
    """

    lr: float = 3e-6
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    warmup_updates: int = 0
    schedule: Schedule = Schedule.linear
    schedule_per: Per = Per.update

    def __post_init__(self) -> None:
        if not 0 < self.lr < 1:
            raise UserError(f"optim.lr={self.lr} is out of range: choose above 0 and below 1")
        if self.max_grad_norm <= 0:
            raise UserError(f"optim.max_grad_norm={self.max_grad_norm}: must be above 0")
        if self.warmup_updates < 0:
            raise UserError(f"optim.warmup_updates={self.warmup_updates}: must be 0 or more")

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
