"""Config section `sft`: how the policy is fine-tuned before RLHF."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rlhf_lab.types import limits


class LossOn(StrEnum):
    """Which tokens the SFT loss counts. The paper's code counts all (N+ detail 9)."""

    response = "response"
    all = "all"


@dataclass(frozen=True)
class SFTOptions(limits.Limited, key="sft"):
    """Supervised fine-tuning on reference answers, before RLHF."""

    steps: int = limits.count(450, about="Optimizer steps.")
    batch: int = limits.rows(64, about="Rows of a step.")
    lr: float = limits.number(3e-3, above=0, below=1, about="Largest learning rate.")
    loss_on: LossOn = limits.option(
        LossOn.response,
        about="Tokens that the loss counts: those of the response, or the prompt's too.",
        source="all: N+ detail 9, arXiv:2403.17031",
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
