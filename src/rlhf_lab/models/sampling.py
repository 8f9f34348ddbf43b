"""The generation_config.json saved beside a policy: how transformers samples from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import GenerationConfig


@dataclass(frozen=True)
class GenerationSettings:
    """How a run samples from its policy: at this temperature, from the whole vocabulary."""

    temperature: float
    max_new_tokens: int


def saved_generation(
    model: Any, tokenizer: Any, settings: GenerationSettings | None
) -> GenerationConfig:
    """The config to save: the run's own sampling; without one (a stage) the config that the model
    was loaded with, or its special tokens alone where transformers would refuse to save that.

    Some published models contradict themselves: Llama 2 chat had a temperature without do_sample.
    """
    from transformers import GenerationConfig

    own: GenerationConfig | None = model.generation_config
    if settings is None and own is not None and can_be_saved(own):
        return own
    tokens = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if settings is None:
        return GenerationConfig(**tokens)
    return GenerationConfig(
        **tokens,
        do_sample=True,
        temperature=settings.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=settings.max_new_tokens,
    )


def can_be_saved(config: GenerationConfig) -> bool:
    """Whether transformers saves these settings."""
    try:
        config.validate(strict=True)
    except ValueError:
        return False
    return True
