"""Config section `sft`: how the policy is fine-tuned before RLHF."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rlhf_lab.training.stages.supervised_options import SupervisedOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


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
        least=1,
        most=10**6,
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
        least=2,
        also={0: "for the run's"},
        about="Longest reference, end token included; longer ones are cut. 0 is the run's length.",
        source="53: arXiv:2403.17031, detail 4",
    )
    max_tokens: int = limits.tokens(
        0,
        least=3,
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
