"""The texts of single tokens, for people who read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def token_texts(tokenizer: Any, tokens: Sequence[int]) -> list[str]:
    """What each token adds to the text, special tokens by their names. A token that is a part of a
    character has U+FFFD."""
    return [
        added_text(tokenizer, tokens[max(0, place - 1) : place], token)
        for place, token in enumerate(tokens)
    ]


def added_text(tokenizer: Any, before: Sequence[int], token: int) -> str:
    """Some tokenizers begin a word with a space only where a token stands before it."""
    alone, first = tokenizer.decode([token]), tokenizer.decode(list(before)) if before else ""
    both = tokenizer.decode([*before, token])
    return str(both[len(first) :] if both.startswith(first) else alone)
