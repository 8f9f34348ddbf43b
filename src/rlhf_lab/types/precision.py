"""The type of numbers in which models compute."""

from __future__ import annotations

from enum import StrEnum


class Precision(StrEnum):
    """Of forward and backward passes: auto is bfloat16 on a GPU and float32 on a CPU. The weights
    that an optimizer changes are float32, and so is the head of a reward model."""

    auto = "auto"
    float32 = "float32"
    bfloat16 = "bfloat16"

    def on(self, device_type: str) -> Precision:
        """What it means on a device of this type ("cpu", "cuda")."""
        if self is not Precision.auto:
            return self
        return Precision.float32 if device_type == "cpu" else Precision.bfloat16
