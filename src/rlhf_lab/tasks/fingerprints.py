"""64-bit hashes of texts, by which equal and overlapping texts are found without storing them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

# Arithmetic signs carry meaning, other punctuation does not.
WORD = re.compile(r"[^\W_]+|[+\-*/=<>^%]")


def words(text: str) -> list[str]:
    """The words of a text, without case and punctuation."""
    return WORD.findall(text.casefold())


def fingerprint(text: str) -> int:
    """The hash of a text, the same in every process."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def normalised(text: str) -> int:
    """The hash of a text regardless of case, spacing and punctuation."""
    return fingerprint(" ".join(words(text)) or text)


def ngrams(text: str, n: int) -> Iterator[tuple[int, str]]:
    """Every n-gram of words: its hash and its text."""
    every = words(text)
    for start in range(len(every) - n + 1):
        gram = " ".join(every[start : start + n])
        yield fingerprint(gram), gram
