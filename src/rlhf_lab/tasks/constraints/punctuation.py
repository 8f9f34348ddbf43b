"""Kinds about punctuation marks and digits."""

from __future__ import annotations

import re
from typing import Any

from rlhf_lab.tasks.constraints.kinds import Kind, Stage, aspects
from rlhf_lab.tasks.constraints.length import draw_n
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import STOP


def insert(mark: str) -> Any:
    """Mend by writing the mark after words until there are n of it, or striking it out."""

    def repair(text: str, pen: ReferenceWriter, n: int) -> str:
        while text.count(mark) < n:
            free = [end for _, end in pen.spots(text) if text[end : end + 1] == " "]
            end = pen.choose(free)
            text = f"{text[:end]}{mark}{text[end:]}"
        while text.count(mark) > n:
            text = text.replace(mark, "", 1)
        return text

    return repair


def set_ends(mark: str) -> Any:
    """Mend by ending n sentences with the mark, and the others as before or with a full stop."""

    def repair(text: str, pen: ReferenceWriter, n: int) -> str:
        while text.count(mark) > n:
            text = text.replace(mark, ".", 1)
        while text.count(mark) < n:
            plain = [stop.start() for stop in STOP.finditer(text) if stop[0] == "."]
            if plain:
                place = pen.rng.choice(plain)
                text = text[:place] + mark + text[place + 1 :]
            else:
                text = pen.add_sentence(text, mark)
        return text

    return repair


def num_digits(text: str) -> int:
    return len(re.findall(r"[0-9]", text))


def to_digits(text: str, pen: ReferenceWriter, n: int) -> str:
    """A number of as many digits as are missing; too many are struck out from the front."""
    while num_digits(text) > n:
        text = re.sub(r"[0-9]", "", text, count=1)
    missing = n - num_digits(text)
    if not missing:
        return text
    return pen.keep(text, str(pen.rng.randrange(10 ** (missing - 1), 10**missing)))


def ends(name: str, mark: str, say: str, aspect: str) -> Kind:
    return Kind(
        name,
        say,
        draw_n(2, 3),
        lambda text, n: text.count(mark) == n,
        set_ends(mark),
        Stage.marks,
        aspects(aspect),
    )


KINDS = (
    Kind(
        "no_commas",
        "Use no commas.",
        lambda rng: {},
        lambda text: "," not in text,
        lambda text, pen: text.replace(",", ""),
        Stage.marks,
        aspects("comma"),
    ),
    Kind(
        "commas_exactly",
        "Use exactly {n} commas.",
        draw_n(2, 4),
        lambda text, n: text.count(",") == n,
        insert(","),
        Stage.marks,
        aspects("comma"),
    ),
    Kind(
        "semicolons_exactly",
        "Use exactly {n} semicolons.",
        draw_n(2, 3),
        lambda text, n: text.count(";") == n,
        insert(";"),
        Stage.marks,
        aspects("semicolon"),
    ),
    Kind(
        "no_digits",
        "Use no digits.",
        lambda rng: {},
        lambda text: num_digits(text) == 0,
        lambda text, pen: to_digits(text, pen, 0),
        Stage.words,
        aspects("digits"),
    ),
    Kind(
        "digits_exactly",
        "Use exactly {n} digits.",
        draw_n(3, 6),
        lambda text, n: num_digits(text) == n,
        to_digits,
        Stage.words,
        aspects("digits"),
        brings_words=True,
    ),
    ends("questions_exactly", "?", "Use exactly {n} question marks.", "question"),
    ends("exclamations_exactly", "!", "Use exactly {n} exclamation marks.", "exclamation"),
)
