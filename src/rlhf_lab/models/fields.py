"""Fields that several models have, each with its range and description."""

from __future__ import annotations

from rlhf_lab.models.lora import ALL_LINEAR
from rlhf_lab.types import limits


def lora_rank() -> int:
    """Whether adapters are trained, and how large they are."""
    about = (
        "Rank of the low-rank adapters that the run trains instead of the weights; 0 trains the "
        "weights."
    )
    also = {0: "for no adapters"}
    return limits.count(0, most=10**5, also=also, about=about, source="arXiv:2106.09685")


def lora_alpha() -> float:
    """The scale of adapters."""
    about = "Adapters are scaled by lora_alpha / lora_rank."
    return limits.number(16.0, above=0, most=1e6, about=about, source="arXiv:2106.09685")


def lora_targets() -> list[str]:
    """The modules that have adapters."""
    about = "Last parts of the names of modules that get adapters; all-linear is all but the head."
    return limits.collection(lambda: [ALL_LINEAR], about=about)
