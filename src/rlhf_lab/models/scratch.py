"""Small policies from scratch: a GPTNeoX with random weights."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn

from rlhf_lab.models import fields
from rlhf_lab.models.lora import Lora
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True)
class ScratchModel(limits.Limited, key="model"):
    """A GPTNeoX with random weights, drawn from the run's seed; the task brings the tokenizer."""

    name: str = field(metadata=limits.NAME)
    hidden_size: int = field(
        metadata=limits.within(least=1, most=10**6, about="Width of the model.")
    )
    num_layers: int = field(metadata=limits.within(least=1, most=10**5, about="Number of layers."))
    num_heads: int = field(
        metadata=limits.within(
            least=1, most=10**5, about="Attention heads of a layer; they divide hidden_size."
        )
    )
    max_positions: int = limits.count(
        128, most=2 * limits.MOST_TOKENS, about="Longest sequence in tokens."
    )
    init_std: float = limits.number(
        0.08,
        least=0,
        most=10,
        about=(
            "Standard deviation of the initial weights, about 1/sqrt(hidden_size): at the usual "
            "0.02 so narrow a model does not learn to copy words within a thousand steps."
        ),
    )
    tie_embeddings: bool = limits.option(
        True, about="Whether output and input embeddings are the same weights."
    )
    rotary_dims: int = limits.count(
        8, least=2, most=10**6, about="Dimensions of each head that carry positions."
    )
    lora_rank: int = fields.lora_rank()
    lora_alpha: float = fields.lora_alpha()
    lora_targets: list[str] = fields.lora_targets()

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
