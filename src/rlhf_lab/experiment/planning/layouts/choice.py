"""One way to place a run: a layout of devices and the settings that decide memory and speed."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.experiment.layout import Layout

BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class Choice:
    """micro_tokens: padded tokens of one forward and backward pass. tensor_parallel: devices that
    share one generator's weights."""

    layout: Layout
    engine: str
    dtype: str
    micro_tokens: int
    checkpointing: bool
    tensor_parallel: int

    @property
    def engines(self) -> int:
        """Generators that hold a whole model: servers, or the one in the lead trainer's process."""
        return max(1, self.layout.generators // self.tensor_parallel)

    @property
    def is_apart(self) -> bool:
        """Whether generators have devices that train nothing."""
        return self.layout.generators > 0

    @property
    def devices(self) -> int:
        return self.layout.trainers + self.layout.generators

    @property
    def bytes(self) -> int:
        """Bytes of an element of weights and activations in a pass."""
        return BYTES[self.dtype]

    @property
    def overrides(self) -> list[str]:
        """The settings as `rlhf-lab train` and `rlhf-lab launch` take them."""
        texts = [
            f"engine={self.engine}",
            f"engine.dtype={self.dtype}",
            f"engine.micro_tokens={self.micro_tokens}",
            f"engine.gradient_checkpointing={str(self.checkpointing).lower()}",
        ]
        if self.is_apart:
            texts += [f"generator.dtype={self.dtype}"]
            texts += [f"generator.tensor_parallel_size={self.tensor_parallel}"]
        return texts
