"""Options that the supervised stages share: the optimizer and its learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Self

from rlhf_lab.training.optim import Optim, Schedule, decay, largest_norm
from rlhf_lab.types import limits

# Of one_cycle, whose rate rises over this share of the steps.
ONE_CYCLE_WARMUP = 0.1


class StageSchedule(StrEnum):
    """The learning rate over the steps of a stage. one_cycle: up, then down along a cosine."""

    one_cycle = "one_cycle"
    constant = "constant"
    linear = "linear"
    cosine = "cosine"


@dataclass(frozen=True)
class SupervisedOptions(limits.Limited):
    """AdamW of a supervised stage, and its rate at every step."""

    NANO_LR: ClassVar[float]
    PRETRAINED_LR: ClassVar[float] = 1e-5

    lr: float = limits.number(
        0.0,
        above=0,
        below=1,
        also={0: "for one that suits the model"},
        about="Largest learning rate; 0 is 1e-5 for a pretrained model, more for random weights.",
        source="1e-5: published configs of arXiv:2410.18252",
    )
    schedule: StageSchedule = limits.option(
        StageSchedule.one_cycle,
        about=(
            "Shape of the learning rate: constant, or down to 0 in a line or along a cosine; "
            "one_cycle is a cosine that rises first."
        ),
        source="cosine: arXiv:2403.17031, details 9 and 10",
    )
    warmup_share: float = limits.number(
        -1.0,
        least=0,
        most=1,
        also={-1: "for what the schedule has"},
        about=(
            "Share of the steps over which the rate rises to lr; -1 is a tenth for one_cycle and "
            "none for other schedules."
        ),
    )
    eps: float = limits.number(
        1e-8,
        least=1e-30,
        most=1,
        about="AdamW's term against division by zero.",
        source="1e-5: arXiv:2403.17031, details 9 and 10",
    )
    weight_decay: float = limits.number(
        0.0, least=0, most=1000, about="AdamW's decoupled weight decay."
    )
    max_grad_norm: float = largest_norm()

    def for_model(self, is_pretrained: bool) -> Self:
        """The options with a rate for the kind of model that the stage starts from."""
        return replace(self, lr=self.lr or (self.PRETRAINED_LR if is_pretrained else self.NANO_LR))

    @property
    def optim(self) -> Optim:
        """The optimizer. Raises AssertionError if no model was named: see `for_model`."""
        assert self.lr, "the options of a stage are those of a model"
        return Optim(
            lr=self.lr,
            eps=self.eps,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
        )

    def rate(self, step: int, num_steps: int) -> float:
        """Learning rate of a step, from 0: linear up over the warm-up, then the schedule."""
        share = self.warmup_share
        if share < 0:
            share = ONE_CYCLE_WARMUP if self.schedule is StageSchedule.one_cycle else 0.0
        up = max(1, int(num_steps * share)) if share else 0
        lr = self.optim.lr
        if step < up:
            return lr * ((step + 1) / up)
        return lr * decay(self.shape, (step - up) / max(1, num_steps - up))

    @property
    def shape(self) -> Schedule:
        """How the rate falls once it is at its largest."""
        is_cycle = self.schedule is StageSchedule.one_cycle
        return Schedule.cosine if is_cycle else Schedule(self.schedule.value)
