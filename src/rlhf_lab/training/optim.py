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


def largest_norm(source: str = "") -> float:
    """The option of the norm at which gradients are clipped."""
    return limits.number(
        1.0,
        above=0,
        max=1e9,
        also={0: "for no clipping"},
        about="Norm to which larger gradients are scaled down; 0 leaves them as they are.",
        source=source,
    )


@dataclass(frozen=True)
class Optim(limits.OptionGroup, key="optim"):
    """AdamW, with the defaults of arXiv:2410.18252 for Pythia on TL;DR."""

    lr: float = limits.number(3e-6, above=0, below=1, about="Largest learning rate.")
    beta1: float = limits.number(0.9, min=0, below=1, about="AdamW's decay of the mean gradient.")
    beta2: float = limits.number(
        0.999, min=0, below=1, about="AdamW's decay of the mean squared gradient."
    )
    eps: float = limits.number(
        1e-8, min=1e-30, max=1, about="AdamW's term against division by zero."
    )
    weight_decay: float = limits.number(
        0.0, min=0, max=1000, about="AdamW's decoupled weight decay."
    )
    max_grad_norm: float = largest_norm("0: published code of arXiv:2410.18252 on TL;DR")
    warmup_updates: int = limits.count(
        0, min=0, about="Updates over which the learning rate rises from 0 to lr."
    )
    schedule: Schedule = limits.option(
        Schedule.linear, about="How the learning rate falls to 0 over the run, if it does."
    )
    schedule_per: Per = limits.option(
        Per.update,
        about=(
            "Whether the schedule moves with every update or every round; with round the last "
            "round trains at rate 0, so that a large N also means less learning rate in all."
        ),
        source="round: published code of arXiv:2410.18252",
    )

    gradient_cosine: bool = limits.option(
        False,
        about=(
            "Whether the cosine of the gradients of consecutive updates is measured, as "
            "update/gradient_cosine. It takes a copy of the gradients in memory and in checkpoints."
        ),
        fork="the optimizer's state holds gradients only with it",
        source="arXiv:2603.01501",
    )
    max_gradient_cosine: float = limits.number(
        1.0,
        min=0,
        max=1,
        about=(
            "Largest cosine of the gradients of consecutive updates: of a gradient above it, the "
            "part along the last one is made smaller. 1: none; below, with optim.gradient_cosine."
        ),
        source="after arXiv:2603.01501",
    )

    @property
    def largest_norm(self) -> float:
        """The norm above which gradients are scaled down: infinite where they never are."""
        return self.max_grad_norm or math.inf

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
