"""The language model of text within one that reads images or sounds too: the policy of a run."""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from rlhf_lab.models.heads import is_tied
from rlhf_lab.models.loading import shape_of
from rlhf_lab.types.errors import UserError


def text_config(config: Any, path: str, key: str) -> Any:
    """The config of a model's text part, itself where it has text alone. Raises UserError, naming
    the option `key`, where transformers has no language model for the part."""
    if "text_config" not in type(config).sub_configs:
        return config
    text = config.get_text_config()
    if type(text) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"{key}={path}: a {config.model_type} reads images or sounds, and transformers has no "
            f"language model for its text alone: pass {key}=<a model of text>"
        )
    return text


def text_part(model: Any, path: str, key: str) -> Any:
    """The language model of a model's text part, of the same tensors; itself where it has text
    alone."""
    config = text_config(model.config, path, key)
    if config is model.config:
        return model
    text = shape_of(AutoModelForCausalLM, config, path, key)
    decoder = model.get_decoder()
    setattr(text, text.base_model_prefix, decoder)
    text.set_output_embeddings(model.get_output_embeddings())
    text.config, text.generation_config = decoder.config, model.generation_config
    text.config.tie_word_embeddings = is_tied(text)
    return text
