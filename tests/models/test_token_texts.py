"""The texts of single tokens: together they are the text, whatever a tokenizer does with spaces."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.tasks.arithmetic import character_tokenizer
from rlhf_lab.training.round_metrics import token_texts

WORDS = ("ask", "me", "<end>")


class Spaced:
    """Words, with a space before each but the first."""

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(WORDS[token] for token in tokens)


class Bytes:
    """A token a byte; what is no whole character is U+FFFD."""

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode("utf-8", errors="replace")


def test_spaces_stand_with_the_token_that_brings_them() -> None:
    assert token_texts(Spaced(), (0, 1, 0, 2)) == ["ask", " me", " ask", " <end>"]
    assert token_texts(Spaced(), ()) == []


def test_texts_of_tokens_spell_the_text() -> None:
    tokenizer = character_tokenizer()
    tokens = tokenizer("12+34=46")["input_ids"]
    found = token_texts(tokenizer, tokens)
    assert len(found) == len(tokens) and "".join(found) == tokenizer.decode(tokens)


def test_a_part_of_a_character_has_a_mark() -> None:
    assert token_texts(Bytes(), tuple("aéb".encode())) == ["a", "\ufffd", "\ufffd", "b"]
