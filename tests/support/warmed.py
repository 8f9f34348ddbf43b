"""What every process that loads a model makes for itself, made once in the server of a session."""

from __future__ import annotations

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

# Transformers compiles hundreds of patterns for the names of weights.
get_checkpoint_conversion_mapping("gpt_neox")
