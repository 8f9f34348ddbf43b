"""Read the files of predictions, `analysis/predictions/NAME.yaml`, and refuse what is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any, Required, TypeVar

from typing_extensions import TypedDict

from rlhf_lab.runs.reading import Unreadable, checked, read_yaml
from rlhf_lab.types.errors import UserError

FOLDER = Path(__file__).parent
NAME = re.compile(r"[a-z0-9_]+")
Kind = TypeVar("Kind", bound=StrEnum)


class By(StrEnum):
    """How a number is predicted: a line of log odds over settings, or the law of scaling over the
    updates of one setting."""

    line = "line"
    law = "law"


class Prompts(StrEnum):
    """Which evaluation of the last version: on more prompts, or on those of the versions before."""

    last = "last"
    way = "way"


class SourceRow(TypedDict, total=False):
    """Runs that a number is predicted from. at: the number of the setting that a line is over."""

    runs: Required[dict[str, Any]]
    at: float


# `from` is a keyword of Python.
PredictionRow = TypedDict(
    "PredictionRow",
    {
        "text": str,
        "written": str,
        "number": float,
        "interval": list[float],
        "level": float,
        "prompts": str,
        "of": dict[str, Any],
        "by": str,
        "from": list[SourceRow],
        "to": float,
        "known": bool,
    },
)


class PredictionFile(TypedDict):
    """The whole file."""

    title: str
    predictions: dict[str, PredictionRow]


@dataclass(frozen=True)
class Source:
    """See SourceRow."""

    runs: Mapping[str, Any]
    at: float


@dataclass(frozen=True)
class Prediction:
    """A gold win-rate at the end of runs, the mean over stage seeds, and what it was made from.

    of: the condition, by `sweep` and keys of the config. to: the setting on the line, or the
    updates. known: whether the outcome was there when it was written, so that it proves nothing.
    """

    name: str
    text: str
    written: date
    number: float
    low: float
    high: float
    level: float
    prompts: Prompts
    of: Mapping[str, Any]
    by: By
    sources: tuple[Source, ...]
    to: float
    known: bool


def read_predictions(folder: Path = FOLDER) -> list[Prediction]:
    """The predictions of all files, in order of files and rows. Raises UserError if there is no
    file, or if two have a name in common."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise UserError(f"{folder}: there is no file of predictions (NAME.yaml)")
    found: dict[str, Prediction] = {}
    for path in paths:
        for one in read_file(path):
            if one.name in found:
                raise UserError(f"{path}: {one.name} is in another file too: choose another name")
            found[one.name] = one
    return list(found.values())


def read_file(path: Path) -> list[Prediction]:
    """The predictions of a file. Raises UserError with the row, the key and the remedy."""
    try:
        given = read_yaml(path)
        file = checked(given, PredictionFile, path)
    except Unreadable as error:
        raise UserError(f"{error}: see the other files of {FOLDER}") from error
    refuse_unknown(path, "the file", given, PredictionFile)
    return [
        read_row(path, name, row, given["predictions"][name])
        for name, row in file["predictions"].items()
    ]


def read_row(path: Path, name: str, row: PredictionRow, given: Mapping[str, Any]) -> Prediction:
    """One row, checked."""
    refuse_unknown(path, name, given, PredictionRow)
    for source in given["from"]:
        refuse_unknown(path, f"{name}: from", source, SourceRow)
    if not NAME.fullmatch(name):
        raise UserError(f"{path}: {name}: names have small letters, digits and _ alone")
    by = one_of(path, name, "by", row["by"], By)
    check_numbers(path, name, row)
    check_sources(path, name, by, row["from"])
    if not row["of"]:
        raise UserError(f"{path}: {name}: of={{}}: name the sweep and keys of the condition")
    low, high = row["interval"]
    return Prediction(
        name,
        row["text"],
        day_of(path, name, row["written"]),
        row["number"],
        low,
        high,
        row["level"],
        one_of(path, name, "prompts", row["prompts"], Prompts),
        row["of"],
        by,
        tuple(Source(source["runs"], source.get("at", 0.0)) for source in row["from"]),
        row["to"],
        row["known"],
    )


def check_numbers(path: Path, name: str, row: PredictionRow) -> None:
    """The interval is of shares and holds the number; the level is a share."""
    ends = row["interval"]
    is_whole = len(ends) == 2 and 0 <= ends[0] < ends[1] <= 1
    if not is_whole or not ends[0] <= row["number"] <= ends[1]:
        raise UserError(
            f"{path}: {name}: interval={ends} with number={row['number']}: pass [low, high] of "
            "shares from 0 to 1, with the number between them"
        )
    if not 0 < row["level"] < 1:
        raise UserError(f"{path}: {name}: level={row['level']}: pass a share such as 0.95")


def check_sources(path: Path, name: str, by: By, sources: Sequence[SourceRow]) -> None:
    """A law has one source; a line has two or more, each with its place on it."""
    is_law = by is By.law
    if is_law and (len(sources) != 1 or "at" in sources[0]):
        raise UserError(f"{path}: {name}: by=law: pass one source in `from`, without `at`")
    if not is_law and (len(sources) < 2 or any("at" not in source for source in sources)):
        raise UserError(f"{path}: {name}: by=line: pass two sources or more in `from`, with `at`")


def day_of(path: Path, name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UserError(
            f'{path}: {name}: written={text}: pass a day such as "2026-11-25"'
        ) from error


def one_of(path: Path, name: str, key: str, value: str, kind: type[Kind]) -> Kind:
    if value not in set(kind):
        allowed = ", ".join(kind)
        raise UserError(f"{path}: {name}: {key}={value}: choose one of {allowed}")
    return kind(value)


def refuse_unknown(path: Path, name: str, row: Mapping[str, Any], kind: Any) -> None:
    if unknown := sorted(set(row) - set(kind.__annotations__)):
        allowed = ", ".join(sorted(kind.__annotations__))
        raise UserError(f"{path}: {name}: key={unknown[0]}: choose one of {allowed}")
