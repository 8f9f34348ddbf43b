"""The text frame of a model: what its tokenizer puts in front of a text, and what ends an answer.

Every text that becomes tokens, and every sample that ends, goes through here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

# The attribute by which the frame travels with a tokenizer, to other processes too.
FRAME = "text_frame"


class Marks(NamedTuple):
    """start: tokens in front of a row's text. ends: end tokens. in_chats: whether start stands in
    front of chats too whose template does not write it."""

    start: tuple[int, ...]
    ends: tuple[int, ...]
    in_chats: bool = False


class TextFrame:
    """How the model of a tokenizer reads and ends texts. tokenizer: of transformers; one that
    `framed` has not marked is asked, and its own end token is the only one."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._marks: Marks | None = getattr(tokenizer, FRAME, None)

    @functools.cached_property
    def start(self) -> tuple[int, ...]:
        """Tokens in front of the first text of a row: mostly BOS, or nothing."""
        return self._marks.start if self._marks else asked_start(self.tokenizer)

    @functools.cached_property
    def ends(self) -> tuple[int, ...]:
        """Tokens each of which ends an answer, the tokenizer's own first."""
        if self._marks:
            return self._marks.ends
        end = self.tokenizer.eos_token_id
        return () if end is None else (end,)

    @property
    def end(self) -> int:
        """The token that ends an answer where no template writes another."""
        return self.ends[0]

    @property
    def pad(self) -> int:
        """The padding token, or the end token where there is none: padding is masked everywhere."""
        pad = self.tokenizer.pad_token_id
        return int(self.end if pad is None else pad)

    def row(self, text: str) -> list[int]:
        """A plain text at the start of a row. One that has the start tokens in it gets no others.

        Raises what the tokenizer does for text that it cannot encode.
        """
        tokens = self.inside(text)
        has_start = tuple(tokens[: len(self.start)]) == self.start
        return tokens if has_start else [*self.start, *tokens]

    def chat(self, text: str) -> list[int]:
        """A whole chat in its template, which writes the special tokens itself."""
        has_start = self._marks is not None and self._marks.in_chats
        return self.row(text) if has_start else self.inside(text)

    def inside(self, text: str) -> list[int]:
        """A text behind another: no special tokens are added."""
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return list(tokens) if text else []

    def has_end(self, tokens: Sequence[int]) -> bool:
        """Whether the last token is an end token."""
        return bool(tokens) and tokens[-1] in self.ends

    def cut(self, tokens: Sequence[int]) -> Sequence[int]:
        """The tokens up to the first end token, which stays (arXiv:2403.17031, detail 23)."""
        for place, token in enumerate(tokens):
            if token in self.ends:
                return tokens[: place + 1]
        return tokens

    def text(self, tokens: Sequence[int], keep_special: bool = False) -> str:
        """The text of an answer, without its end token. keep_special: with other special tokens."""
        whole = list(tokens[:-1] if self.has_end(tokens) else tokens)
        return str(self.tokenizer.decode(whole, skip_special_tokens=not keep_special))


def framed(tokenizer: Any, ends: Iterable[int] = ()) -> Any:
    """The tokenizer, marked with its frame. ends: end tokens in addition to its own."""
    own = tokenizer.eos_token_id
    every = dict.fromkeys([*(() if own is None else (own,)), *ends])
    return marked(tokenizer, Marks(asked_start(tokenizer), tuple(every)))


def marked(tokenizer: Any, marks: Marks) -> Any:
    """The tokenizer with this frame."""
    setattr(tokenizer, FRAME, marks)
    return tokenizer


def asked_start(tokenizer: Any) -> tuple[int, ...]:
    """What the tokenizer puts in front of a plain text, found by encoding one with and without
    special tokens; what it puts behind the text is no part of it.

    Raises ValueError where the text is not found again among its special tokens.
    """
    plain, whole = probes(tokenizer)
    size = len(plain)
    for place in range(len(whole) - size + 1):
        if whole[place : place + size] == plain:
            return tuple(whole[:place])
    raise ValueError(f"{plain} is not in {whole}, its encoding with special tokens")


def probes(tokenizer: Any) -> tuple[list[int], list[int]]:
    """A text of its vocabulary without and with special tokens; nothing of an empty vocabulary."""
    special = set(tokenizer.all_special_ids)
    for token in range(len(tokenizer)):
        if token in special:
            continue
        text = tokenizer.decode([token])
        plain = list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []
        if plain:
            return plain, list(tokenizer(text)["input_ids"])
    return [], []
