"""What counts as a word, a sentence, a line and a paragraph."""

from __future__ import annotations

import re

WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
MARKER = re.compile(r"^\s*(?:[-*+]|\d+[.)]|#+)\s+")
# Marks that end no sentence, such as those in 1.5, are passed over with what closes behind them.
SENTENCE = re.compile(r".(?:[^.!?\n]++|[.!?]++[\"')\]*]*+(?!\s|$))*(?:[.!?]++[\"')\]*]*+|$)")
# A full stop after a list number or in P.S. ends no sentence.
STOP = re.compile(r"(?<=[^\W\d]|[\])*\"])(?<!\bP\.S)[.!?](?=\s|$|[\"*)])", re.IGNORECASE)
BEFORE_HEAD = re.compile(r"(?:^|[.!?\n])\W*$")


def words(text: str) -> list[str]:
    """Runs of letters and digits, with apostrophes and hyphens inside; in lower case."""
    return [found.lower() for found in WORD.findall(text)]


def spans(text: str) -> list[tuple[int, int]]:
    """Start and end of every word."""
    return [found.span() for found in WORD.finditer(text)]


def lines(text: str) -> list[str]:
    """All lines that are not blank."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def paragraphs(text: str) -> list[str]:
    """Blocks with a blank line between them."""
    return [part.strip() for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]


def sentences(text: str) -> list[str]:
    """All sentences, which end in . ! or ? or with their line; without list and heading marks."""
    pieces = []
    for line in lines(text):
        hidden = re.sub(r"\bP\.\s?S\.", lambda ps: ps[0].replace(".", "\0"), line, flags=re.I)
        pieces += [piece.replace("\0", ".") for piece in SENTENCE.findall(MARKER.sub("", hidden))]
    return [piece.strip() for piece in pieces if WORD.search(piece)]


def heads(text: str) -> list[tuple[int, int]]:
    """Start and end of the first word of each sentence."""
    found, position = [], 0
    for sentence in sentences(text):
        position = text.index(sentence, position)
        first = WORD.search(text, position)
        assert first is not None
        found.append(first.span())
        position += len(sentence)
    return found


def split_tail(text: str) -> tuple[str, str]:
    """The text up to the end of its last word, and the rest."""
    end = spans(text)[-1][1]
    return text[:end], text[end:]
