"""One tracked run, in the same form from every source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rlhf_lab.runs.jsonl import leaves
from rlhf_lab.runs.renames import present_config, present_key
from rlhf_lab_analysis.sources.findings import Finding

Number = int | float
Cell = int | float | str
Row = Mapping[str, Cell]

# Above this, whole numbers are not exact as float64, which is what a column with gaps holds.
EXACT = 2**53
# What 64 bits hold.
LARGEST = 2**63 - 1
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Metrics that are a number for each lag or turn: rows have those that occurred.
MAPPINGS = ("by_lag/", "by_turn/")


class Source(StrEnum):
    """Where a run was read. The first ones know most: of a run in two sources the first counts."""

    folder = "folder"
    wandb = "wandb"
    offline = "offline"
    orb = "orb"
    tensorboard = "tensorboard"
    csv = "csv"
    saved = "saved"


@dataclass(frozen=True)
class Facts:
    """Facts of a run that are not measured numbers; "" and None where its source lacks one.

    seed: None if the run has none. sweep: the sweep it is a job of. swept: which job, as
    `key=value,key=value`. project: `entity/project` or the folder it was found below.
    planned_rounds: rounds it was to make. step: name of the axis that its source counts in.
    machine: the one that its seconds were measured on. kernels: the CPU kernels that computed it.
    precision: the devices and types of numbers that it was computed with. changed: the keys of its
    config whose values differ from their defaults, None if they are unknown.
    """

    state: str = "unknown"
    seed: int | None = None
    name: str = ""
    sweep: str = ""
    swept: str = ""
    project: str = ""
    user: str = ""
    job_type: str = "train"
    tags: tuple[str, ...] = ()
    code: str = ""
    content: str = ""
    commit: str = ""
    started: str = ""
    planned_rounds: int | None = None
    step: str = ""
    machine: str = ""
    kernels: str = ""
    precision: str = ""
    changed: frozenset[str] | None = None


@dataclass(frozen=True)
class Record:
    """A run with its flat rows in order. rounds: recorded points; evals: evaluated versions, each
    with `version`, and `label` where the evaluation has one. config: plain, nested or dotted."""

    source: Source
    run: str
    place: str
    facts: Facts
    config: Mapping[str, Any]
    rounds: Sequence[Row]
    evals: Sequence[Row]
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", present_config(self.config))
        if (changed := self.facts.changed) is not None:
            facts = replace(self.facts, changed=frozenset(map(present_key, changed)))
            object.__setattr__(self, "facts", facts)


@dataclass(frozen=True)
class Reading:
    """What a source held: its runs, and findings that belong to none of them."""

    records: tuple[Record, ...]
    findings: tuple[Finding, ...] = ()


def joined(readings: Iterable[Reading]) -> Reading:
    """Several readings as one, in their order."""
    every = list(readings)
    return Reading(
        tuple(record for one in every for record in one.records),
        tuple(finding for one in every for finding in one.findings),
    )


def flat(row: Mapping[str, Any]) -> dict[str, Cell]:
    """A recorded row with the path of each nested value as its name (`by_lag/x.3`, `bins[0]`);
    media and empty values are left out, "NaN" and "Infinity" of JSON are numbers."""
    found: dict[str, Cell] = {}
    for key, value in row.items():
        kind = type(value)
        # Nearly all values are plain numbers, of which thousands of runs have tens of millions.
        if kind is float or (kind is int and -EXACT <= value <= EXACT):
            found[key] = value
        elif not is_media(value):
            found |= {name: cell(one) for name, one in leaves(value, key) if one is not None}
    return found


def is_media(value: Any) -> bool:
    """Whether a tracker keeps an image, a table or a histogram there."""
    return isinstance(value, Mapping) and "_type" in value


def cell(value: Any) -> Cell:
    """A number or a text."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) <= EXACT else as_float(value)
    return NOT_FINITE.get(value, value) if isinstance(value, str) else str(value)


def as_float(value: int) -> float:
    """The nearest float64, infinite where there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def look_up(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None if there is none. Configs are nested or have dotted keys, and
    `.value`, which wandb's server puts after the first part, may be there or not."""
    key = present_key(key)
    if key in config:
        return config[key]
    node: Any = config
    for part in key.split("."):
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif part != "value":
            return None
    return node


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config's values by dotted key, lists as they are."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": one for inner, one in flat_config(value).items()}
        else:
            found[key] = value
    return found


def as_seed(value: Any) -> int | None:
    """A seed, also one that was written as text (`1`, or `1.0` as spreadsheets have it); None if it
    is none."""
    if isinstance(value, str):
        try:
            value = int(value.removesuffix(".0"))
        except ValueError:
            return None
    return whole(value)


def parsed(text: str) -> int | float | str:
    """A number, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def whole(value: Any) -> int | None:
    """A number without a fraction that a column of whole numbers holds, else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and abs(value) <= LARGEST else None
