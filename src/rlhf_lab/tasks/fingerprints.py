"""Texts as numbers, so that equal and overlapping ones are found without holding any of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

# Signs of arithmetic carry meaning, other punctuation does not.
WORD = re.compile(r"[^\W_]+|[+\-*/=<>^%]")


def words(text: str) -> list[str]:
    """The text without case, spacing and punctuation."""
    return WORD.findall(text.casefold())


def fingerprint(text: str) -> int:
    """64 bits of a text, the same in every process."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def normalised(text: str) -> int:
    """64 bits that texts share which differ only in case, spacing and punctuation."""
    return fingerprint(" ".join(words(text)) or text)


def ngrams(text: str, n: int) -> Iterator[tuple[int, str]]:
    """Every run of n words: its 64 bits, and the words."""
    found = words(text)
    for start in range(len(found) - n + 1):
        gram = " ".join(found[start : start + n])
        yield fingerprint(gram), gram
