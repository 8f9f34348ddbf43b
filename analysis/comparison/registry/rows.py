"""The types of a file of claims, by which it is checked when it is read."""

from __future__ import annotations

from typing import Any, Required

from typing_extensions import TypedDict


class PlanRow(TypedDict):
    """truth: the difference that is expected. spread: standard deviation over stage seeds."""

    truth: float
    spread: float


class PartRow(TypedDict):
    """A part of the conditions, its value in the first place, and those that it is compared to."""

    after: Any
    before: list[Any]


class BoundaryRow(TypedDict):
    """The setting whose largest stable value is looked for, and the one over which."""

    rate: str
    over: str


class Bound(TypedDict, total=False):
    """The least or the most that an evaluation's number may be."""

    least: float
    most: float


class ClaimRow(TypedDict, total=False):
    """A claim as its file has it: docs/benchmark.md, "A claim"."""

    question: Required[str]
    text: Required[str]
    where: Required[str]
    sweep: Required[str]
    runs: Required[dict[str, Any]]
    measure: Required[str]
    shows: Required[str]
    plan: PlanRow
    change: dict[str, list[Any]]
    at: dict[str, str]
    slope: dict[str, list[int]]
    boundary: BoundaryRow
    than: float
    more_than: dict[str, PartRow]
    against: dict[str, PartRow]
    each: list[str]
    beside: list[str]
    margin: float
    looks: int


class Change(TypedDict):
    """A later change of the file: when, what, and why."""

    date: str
    what: str


class RegistryFile(TypedDict, total=False):
    """The whole file."""

    paper: Required[str]
    title: Required[str]
    written: Required[Any]
    gates: dict[str, dict[str, Bound]]
    changed: list[Change]
    claims: Required[dict[str, ClaimRow]]
    waiting: dict[str, str]
