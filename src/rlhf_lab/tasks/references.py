"""Reference answers in the form of samples, for SFT, for preferences and for their log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhf_lab.types.samples import Finish, Group, Prompt, Sample


def reference_groups(prompts: Sequence[Prompt], tokenizer: Any, max_tokens: int) -> list[Group]:
    """References as groups of one sample, cut at the response length."""
    return [Group(prompt, (reference_sample(prompt, tokenizer, max_tokens),)) for prompt in prompts]


def reference_sample(prompt: Prompt, tokenizer: Any, max_tokens: int) -> Sample:
    """A reference answer in the form of a finished sample (log-probs unknown, set to 0)."""
    text = prompt.example.reference
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"][: max_tokens - 1]
    tokens = (*tokens, tokenizer.eos_token_id)
    return Sample(tokens, (0.0,) * len(tokens), -1, Finish.eos, text.strip())
