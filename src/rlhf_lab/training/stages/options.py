"""Options of the supervised stages: optimizer and learning rate; SFT; reward models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Self

from rlhf_lab.training.optim import Optim, Schedule, decay, largest_norm
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

# Of one_cycle, whose rate rises over this share of the steps.
ONE_CYCLE_WARMUP = 0.1
SHARES = ("flip_share", "drop_share", "soft_share")


class StageSchedule(StrEnum):
    """The learning rate over the steps of a stage. one_cycle: up, then down along a cosine."""

    one_cycle = "one_cycle"
    constant = "constant"
    linear = "linear"
    cosine = "cosine"


@dataclass(frozen=True)
class SupervisedOptions(limits.OptionGroup):
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
        min=0,
        max=1,
        also={-1: "for what the schedule has"},
        about=(
            "Share of the steps over which the rate rises to lr; -1 is a tenth for one_cycle and "
            "none for other schedules."
        ),
    )
    eps: float = limits.number(
        1e-8,
        min=1e-30,
        max=1,
        about="AdamW's term against division by zero.",
        source="1e-5: arXiv:2403.17031, details 9 and 10",
    )
    weight_decay: float = limits.number(
        0.0, min=0, max=1000, about="AdamW's decoupled weight decay."
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


class LossOn(StrEnum):
    """Which tokens the SFT loss counts. The paper's code counts all (N+ detail 9)."""

    response = "response"
    all = "all"


@dataclass(frozen=True)
class SFTOptions(SupervisedOptions, key="sft"):
    """Supervised fine-tuning on reference answers, before RLHF."""

    NANO_LR: ClassVar[float] = 3e-3

    steps: int = limits.count(450, about="Optimizer steps; sft.epochs replaces them.")
    epochs: int = limits.count(
        0,
        min=1,
        max=10**6,
        also={0: "for a number of steps"},
        about="Passes over the training rows, in place of steps; 0 makes the steps.",
        source="1: arXiv:2403.17031, detail 9",
    )
    batch: int = limits.rows(64, about="Rows of a step.")
    loss_on: LossOn = limits.option(
        LossOn.response,
        about="Tokens that the loss counts: those of the response, or the prompt's too.",
        source="all: N+ detail 9, arXiv:2403.17031",
    )
    max_response_tokens: int = limits.tokens(
        0,
        min=2,
        also={0: "for the run's"},
        about="Longest reference, end token included; longer ones are cut. 0 is the run's length.",
        source="53: arXiv:2403.17031, detail 4",
    )
    max_tokens: int = limits.tokens(
        0,
        min=3,
        also={0: "for no other limit"},
        about="Longest prompt with its reference, which is cut to it; 0 has no such limit.",
        source="562: arXiv:2403.17031, detail 4; 580: published configs of arXiv:2410.18252",
    )
    threads: int = limits.threads(2, about="CPU threads of each operation of the stage.")
    micro_rows: int = limits.rows(
        0,
        also={0: "for what suits the device"},
        about=(
            "Rows of one pass, by all trainers and with the engine's other limits; 0 is the "
            "whole step in the first trainer on a CPU, and engine.micro_rows on other devices."
        ),
    )

    def num_steps(self, rows: int) -> int:
        """Optimizer steps over so many training rows, of which the last ones may not fill a batch.

        Raises UserError if they do not fill one.
        """
        if not self.epochs:
            return self.steps
        if rows < self.batch:
            raise UserError(
                f"sft.batch={self.batch} is larger than the {rows} training rows: lower it, or "
                "pass sft.steps=NUMBER sft.epochs=0"
            )
        return self.epochs * (rows // self.batch)


@dataclass(frozen=True)
class Treatment:
    """What to do with labels by their strength. Shares are of all pairs, the weakest first.

    flip_share: the other answer is taken as the better one. drop_share: left out.
    soft_share: the target is sigmoid(strength) instead of 1.
    margin: the gap must exceed the strength. smoothing: the target is 1 - smoothing.
    """

    flip_share: float = 0.0
    drop_share: float = 0.0
    soft_share: float = 0.0
    margin: bool = False
    smoothing: float = 0.0

    @property
    def needs_strength(self) -> bool:
        return bool(self.flip_share or self.drop_share or self.soft_share or self.margin)


@dataclass(frozen=True)
class RewardModelOptions(SupervisedOptions, key="reward_model"):
    """Training of the proxy reward model on the labelled pairs (N+ details 10 to 15,
    arXiv:2403.17031)."""

    NANO_LR: ClassVar[float] = 1e-3

    epochs: int = limits.count(1, max=10**6, about="Passes over the pairs.")
    batch: int = limits.rows(64, about="Pairs of an optimizer step.")
    max_response_tokens: int = limits.tokens(
        0,
        min=2,
        also={0: "for answers as they are"},
        about="Longest answer of a pair, end token included; longer ones are cut. 0 cuts none.",
        source="169: arXiv:2403.17031, detail 4",
    )
    max_tokens: int = limits.tokens(
        0,
        min=3,
        also={0: "for no limit"},
        about="Longest prompt with an answer, which is cut to it; 0 has no such limit.",
        source="638: arXiv:2403.17031, detail 4; 640: published configs of arXiv:2410.18252",
    )
    head_std: float = limits.number(
        0.0,
        above=0,
        max=10,
        also={0: "for 1/sqrt(width + 1)"},
        about="Standard deviation of the head's first weights; 0 is 1/sqrt(width + 1).",
        source="1/sqrt(width + 1): arXiv:2403.17031, detail 11; 0.02: transformers' own head",
    )
    normalize: bool = limits.option(
        True,
        about="Whether scores are shifted so that reference answers have a mean of 0.",
        source="arXiv:2403.17031, detail 15; off: published code of arXiv:2410.18252",
    )
    accuracy_by: str = limits.option(
        "",
        about=(
            "A field of the held-out pairs, by whose values accuracy is also measured: batch, or "
            "policies, the names of the two that wrote the answers. Empty: none."
        ),
        source="arXiv:2403.17031, detail 6",
    )
    steps: str = limits.option(
        "",
        about=(
            "JSON lines with prompt, steps and labels (from 0 to 1 for each step): `rlhf-lab "
            "reward-model` then trains a model of steps for reward=steps instead of a proxy."
        ),
        source="arXiv:2305.20050, arXiv:2312.08935",
    )
    step_separator: str = limits.option(
        "\\n", about="Text that ends a step in reward_model.steps; \\n is the end of a line."
    )
    held_out_steps: float = limits.share(
        0.1, about="Share of the rows of reward_model.steps, the last ones, to judge by."
    )
    threads: int = limits.threads(2, about="CPU threads of each operation of the stage.")
    strength_members: int = limits.count(
        0,
        min=2,
        max=1000,
        also={0: "for none"},
        why="a vote needs 2 or more",
        about=(
            "Reward models that vote on how strong each preference is, for the options below; 0 "
            "is none."
        ),
        source="arXiv:2401.06080, section 2",
    )
    flip_share: float = limits.share(
        0.0,
        about="Share of all pairs, the weakest preferences first, whose label is reversed.",
        source="arXiv:2401.06080, section 2",
    )
    drop_share: float = limits.share(
        0.0,
        about="Share of all pairs, the weakest preferences first, that are left out.",
        source="arXiv:2401.06080, section 2",
    )
    soft_share: float = limits.share(
        0.0,
        about=(
            "Share of all pairs, the weakest preferences first, with sigmoid(strength) as their "
            "target."
        ),
        source="arXiv:2401.06080, section 2",
    )
    margin: bool = limits.option(
        False,
        about="Whether the difference of scores must exceed the strength of the preference.",
        source="arXiv:2401.06080, section 2",
    )
    label_smoothing: float = limits.share(
        0.0, max=0.5, about="Share of labels assumed to be wrong."
    )
    micro_rows: int = limits.rows(
        0,
        also={0: "for what suits the device"},
        about=(
            "Rows of one pass, two a pair, by all trainers and with the engine's other limits; 0 "
            "is the whole step in the first trainer on a CPU, engine.micro_rows on other devices."
        ),
    )

    @property
    def step_mark(self) -> str:
        """The separator as it stands in a text."""
        return self.step_separator.replace("\\n", "\n")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.step_separator:
            raise UserError("reward_model.step_separator='': name what ends a step, such as .")
        self._check_strength()
        self._check_together()

    def _check_strength(self) -> None:
        if self.treatment.needs_strength and not self.strength_members:
            options = [key for key in (*SHARES, "margin") if getattr(self, key)]
            raise UserError(
                f"reward_model.{options[0]}={getattr(self, options[0])} goes by the strength of "
                "preferences: pass reward_model.strength_members=4 or so to measure it"
            )
        if self.strength_members and not self.treatment.needs_strength:
            raise UserError(
                f"reward_model.strength_members={self.strength_members}, but nothing goes by the "
                "strength: pass reward_model.flip_share, drop_share, soft_share or margin=true, or "
                "leave it 0"
            )

    def _check_together(self) -> None:
        for one, other, why in (
            ("flip_share", "drop_share", "both take the weakest pairs"),
            ("flip_share", "soft_share", "a soft target already turns a negative strength round"),
            ("soft_share", "label_smoothing", "both set the target"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise UserError(
                    f"reward_model.{one}={getattr(self, one)} with reward_model.{other}="
                    f"{getattr(self, other)}: {why}; choose one of them"
                )
        if self.drop_share == 1:
            raise UserError("reward_model.drop_share=1 leaves no pair: choose less")

    @property
    def treatment(self) -> Treatment:
        return Treatment(
            self.flip_share, self.drop_share, self.soft_share, self.margin, self.label_smoothing
        )

    @property
    def voter(self) -> RewardModelOptions:
        """The options of a model that votes: the same, on labels as they are."""
        return replace(
            self,
            strength_members=0,
            flip_share=0.0,
            drop_share=0.0,
            soft_share=0.0,
            margin=False,
            label_smoothing=0.0,
        )
