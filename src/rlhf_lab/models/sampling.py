"""The generation_config.json beside a policy: how transformers samples, and where it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import TextFrame

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
    ends = TextFrame(tokenizer).ends
    tokens = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": ends[0] if len(ends) == 1 else list(ends),
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


def end_tokens(name: str, where: Mapping[str, str], key: str) -> list[int]:
    """The end tokens that a model's folder or repository names: those of its generation config,
    else of its config; none where it has neither. key: the option that named it.

    Raises UserError for one that is damaged or names no token ids.
    """
    from transformers import GenerationConfig, PretrainedConfig
    from transformers.utils import GENERATION_CONFIG_NAME

    try:
        found = GenerationConfig.from_pretrained(name, **where).eos_token_id
    except (OSError, ValueError, TypeError, AttributeError) as error:
        # Of what is on the hub, transformers reports a missing file and a damaged one alike.
        if (Path(name) / GENERATION_CONFIG_NAME).is_file():
            raise UserError(
                f"{key}={name}: its {GENERATION_CONFIG_NAME} could not be read ({error}): pass a "
                "folder made by save_pretrained"
            ) from error
        try:
            found = PretrainedConfig.get_config_dict(name, **where)[0].get("eos_token_id")
        except (OSError, ValueError):
            return []  # a folder of a tokenizer alone; that of a model is refused with its weights
    ends = found if isinstance(found, list) else [] if found is None else [found]
    if not all(type(token) is int and token >= 0 for token in ends):
        raise UserError(
            f"{key}={name} has eos_token_id={found} in its {GENERATION_CONFIG_NAME} or "
            "config.json: write one token id, or a list of them"
        )
    return ends
