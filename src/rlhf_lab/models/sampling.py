"""How a saved policy writes when transformers is asked to: its generation_config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig


@dataclass(frozen=True)
class Written:
    """How a run's policy wrote: at this temperature, from the whole vocabulary."""

    temperature: float
    max_new_tokens: int


def saved_generation(model: Any, tokenizer: Any, written: Written | None) -> GenerationConfig:
    """What is saved beside a policy: the run's own sampling. Of a stage, what the model came with,
    unless transformers would refuse to save it: then its tokens alone.

    Checkpoints come with settings that contradict each other, as Llama 2 chat had a temperature
    without do_sample.
    """
    own: GenerationConfig | None = model.generation_config
    if written is None and own is not None and can_be_saved(own):
        return own
    tokens = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if written is None:
        return GenerationConfig(**tokens)
    return GenerationConfig(
        **tokens,
        do_sample=True,
        temperature=written.temperature,
        top_k=0,
        top_p=1.0,
        max_new_tokens=written.max_new_tokens,
    )


def can_be_saved(config: GenerationConfig) -> bool:
    """Whether transformers saves these settings."""
    try:
        config.validate(strict=True)
    except ValueError:
        return False
    return True
