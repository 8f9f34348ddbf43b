"""Constraints on punctuation marks and digits."""

from __future__ import annotations

import re

from rlhf_lab.tasks.constraints.constraint_types import ConstraintType, Count, Stage, exactly
from rlhf_lab.tasks.constraints.reference_writer import ReferenceWriter
from rlhf_lab.tasks.constraints.text import STOP


def inner_mark(mark: str, aspect: str) -> Count:
    """A mark after words: inserted where there are too few, removed where there are too many."""

    def repair(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
        while text.count(mark) < low:
            free = [end for _, end in writer.replaceable(text) if text[end : end + 1] == " "]
            end = writer.choose(free)
            text = f"{text[:end]}{mark}{text[end:]}"
        while text.count(mark) > high:
            text = text.replace(mark, "", 1)
        return text

    return Count(lambda text: text.count(mark), repair, Stage.marks, aspect)


def end_mark(mark: str, aspect: str) -> Count:
    """A mark at the end of sentences, exchanged for full stops where the count demands it."""

    def repair(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
        while text.count(mark) > high:
            text = text.replace(mark, ".", 1)
        while text.count(mark) < low:
            stops = [stop.start() for stop in STOP.finditer(text) if stop[0] == "."]
            if stops:
                stop = writer.rng.choice(stops)
                text = text[:stop] + mark + text[stop + 1 :]
            else:
                text = writer.add_sentence(text, mark)
        return text

    return Count(lambda text: text.count(mark), repair, Stage.marks, aspect)


def num_digits(text: str) -> int:
    return len(re.findall(r"[0-9]", text))


def set_digits(text: str, writer: ReferenceWriter, low: int, high: int) -> str:
    """Insert one number with all missing digits, or remove digits from the front."""
    while num_digits(text) > high:
        text = re.sub(r"[0-9]", "", text, count=1)
    missing = low - num_digits(text)
    if not missing:
        return text
    number = writer.rng.randrange(10 ** (missing - 1), 10**missing)
    return writer.insert_and_keep(text, str(number))


COMMAS = inner_mark(",", "comma")
SEMICOLONS = inner_mark(";", "semicolon")
DIGITS = Count(num_digits, set_digits, Stage.words, "digits", brings_words=True)
QUESTIONS = end_mark("?", "question")
EXCLAMATIONS = end_mark("!", "exclamation")
TYPES = (
    ConstraintType(
        "no_commas",
        "Use no commas.",
        lambda text: "," not in text,
        lambda text, writer: text.replace(",", ""),
        stage=Stage.marks,
        aspects="comma",
    ),
    COMMAS.limited("commas_exactly", "Use exactly {n} commas.", exactly(2, 4)),
    SEMICOLONS.limited("semicolons_exactly", "Use exactly {n} semicolons.", exactly(2, 3)),
    ConstraintType(
        "no_digits",
        "Use no digits.",
        lambda text: num_digits(text) == 0,
        lambda text, writer: set_digits(text, writer, 0, 0),
        aspects="digits",
    ),
    DIGITS.limited("digits_exactly", "Use exactly {n} digits.", exactly(3, 6)),
    QUESTIONS.limited("questions_exactly", "Use exactly {n} question marks.", exactly(2, 3)),
    EXCLAMATIONS.limited(
        "exclamations_exactly", "Use exactly {n} exclamation marks.", exactly(2, 3)
    ),
)
