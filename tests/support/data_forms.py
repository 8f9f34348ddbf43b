"""Rows in the ten forms of data sets for SFT and preferences, with the fields of published ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

Row = dict[str, Any]
# Of row n: what is asked, and two answers of unequal length.
ASKED, GOOD, BAD = "Name {}.", "It is {}.", "No."


def user(n: int) -> Row:
    return {"role": "user", "content": ASKED.format(n)}


def assistant(text: str) -> Row:
    return {"role": "assistant", "content": text}


def texts(n: int) -> tuple[str, str, str]:
    return ASKED.format(n), GOOD.format(n), BAD


def of_texts(n: int) -> Row:
    asked, good, bad = texts(n)
    return {"prompt": asked, "chosen": f" {good}", "rejected": f" {bad}"}


def of_beginnings(n: int) -> Row:
    """As HH-RLHF has them."""
    asked, good, bad = texts(n)
    before = f"\n\nHuman: {asked}\n\nAssistant:"
    return {"chosen": f"{before} {good}", "rejected": f"{before} {bad}"}


def of_chats(n: int) -> Row:
    _, good, bad = texts(n)
    return {"prompt": [user(n)], "chosen": [assistant(good)], "rejected": [assistant(bad)]}


def of_whole_chats(n: int) -> Row:
    """As trl-lib/ultrafeedback_binarized has them."""
    _, good, bad = texts(n)
    sides = {"chosen": [user(n), assistant(good)], "rejected": [user(n), assistant(bad)]}
    return {**sides, "score_chosen": 7.0 + n % 3, "score_rejected": 5.0}


def ultrafeedback(n: int) -> Row:
    """As HuggingFaceH4/ultrafeedback_binarized has them."""
    row = of_whole_chats(n)
    facts = {"prompt_id": f"{n:064x}", "messages": row["chosen"]}
    return {"prompt": ASKED.format(n), **facts, **row}


PAIRS: dict[str, Callable[[int], Row]] = {
    "texts": of_texts,
    "texts with a common beginning": of_beginnings,
    "chats": of_chats,
    "chats with a common beginning": of_whole_chats,
    "UltraFeedback": ultrafeedback,
}
ANSWERS: dict[str, Callable[[int], Row]] = {
    "text and completion": lambda n: {"prompt": texts(n)[0], "completion": f" {texts(n)[1]}"},
    "chat and completion": lambda n: {"prompt": [user(n)], "completion": [assistant(texts(n)[1])]},
    "messages": lambda n: {"messages": [user(n), assistant(texts(n)[1])]},
}
PROMPTS: dict[str, Callable[[int], Row]] = {
    "text alone": lambda n: {"prompt": texts(n)[0]},
    "chat alone": lambda n: {"prompt": [user(n)]},
}
FORMS = PAIRS | ANSWERS | PROMPTS
# Those whose prompts are texts, which the model reads as they are.
PLAIN = ("texts", "texts with a common beginning", "text and completion", "text alone")


def rows_of(form: str, num: int) -> list[Row]:
    return [FORMS[form](n) for n in range(num)]


def write(path: Path, rows: list[Row]) -> Path:
    """The rows as a file, by its suffix."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
