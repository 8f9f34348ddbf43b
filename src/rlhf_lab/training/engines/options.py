"""Config group `engine`: who holds the weights, and how much memory training may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rlhf_lab.models.devices import check_name
from rlhf_lab.tasks.extras import require
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


class Precision(StrEnum):
    """Of forward and backward passes; the weights that the optimizer changes are float32."""

    float32 = "float32"
    bfloat16 = "bfloat16"


@dataclass(frozen=True)
class EngineOptions(limits.Limited, key="engine"):
    """What all engines share; SingleEngineOptions says what the values mean."""

    name: str
    threads: int = limits.threads(1)
    micro_rows: int = limits.rows(32)
    micro_tokens: int = limits.count(0, also={0: "for no such limit"})
    logit_tokens: int = limits.count(1024, also={0: "for all"})
    gradient_checkpointing: bool = False
    share_prompts: bool = True
    device: str = "auto"
    dtype: Precision = Precision.float32
    shares_work: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.device, "engine.device")


@dataclass(frozen=True)
class SingleEngineOptions(EngineOptions):
    """One process holds everything. threads: torch threads per operation of the trainer.

    micro_rows: rows of one forward and backward pass. micro_tokens: if above 0, groups of like
    length go together, at most so many padded tokens a pass. logit_tokens: response tokens whose
    logits are in memory at a time (0: all). gradient_checkpointing: activations are computed again
    in the backward pass. share_prompts: a prompt is read once for all of its responses where the
    model's attention can and where it costs less. Gradients depend on none of them beyond rounding;
    memory does.
    device: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one, each process its own.
    dtype: float32 alone; the weights themselves are of model.dtype.
    """

    name: str = "single"
    shares_work: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype is not Precision.float32:
            raise UserError(
                f"engine.dtype={self.dtype.value} with engine=single: it trains in the model's own "
                "dtype; pass engine=fsdp or engine=deepspeed, which keep float32 masters"
            )


@dataclass(frozen=True)
class FSDPOptions(EngineOptions):
    """Every process holds a part of every tensor (PyTorch's FSDP2, after arXiv:2304.11277).

    dtype: of forward and backward passes; masters and gradients' sums are float32. The other
    values are those of engine=single, per process.
    """

    name: str = "fsdp"


@dataclass(frozen=True)
class DeepSpeedOptions(EngineOptions):
    """DeepSpeed ZeRO (arXiv:1910.02054). stage 0: all processes hold everything; 1: each a part of
    the optimizer; 2: of the gradients too; 3: of the weights too.

    The gradients of policy and value model are clipped jointly. The other values are those of
    engine=fsdp.
    """

    name: str = "deepspeed"
    stage: int = limits.count(2, least=0, most=3, why="ZeRO stages")

    def require_usable(self, key: str) -> None:
        """Refuse to start without the package, or with sums of gradients in bfloat16."""
        require("deepspeed", "deepspeed", f"{key}=deepspeed", "pass engine=fsdp")
        if self.stage == 0 and self.dtype is Precision.bfloat16:
            raise UserError(
                "engine.stage=0 with engine.dtype=bfloat16: DeepSpeed would add up the gradients "
                "in bfloat16; pass engine.stage=1, which keeps float32 sums"
            )
