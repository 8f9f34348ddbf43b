"""Read the files of claims, `analysis/claims/PAPER.yaml`, and refuse what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Required

from typing_extensions import TypedDict

from rlhf_lab.runs.reading import Unreadable, checked, read_yaml
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.registry.answers import Unit
from rlhf_lab_analysis.comparison.registry.measures import MEASURES, Measure
from rlhf_lab_analysis.statistics.decisions import Shows

FOLDER = Path(__file__).parents[2] / "claims"


class PlanRow(TypedDict):
    """truth: the difference that is expected. spread: standard deviation over stage seeds."""

    truth: float
    spread: float


class PartRow(TypedDict):
    """A part of the conditions, its value in the first place, and those that it is compared to."""

    after: Any
    before: list[Any]


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
    more_than: dict[str, PartRow]
    against: dict[str, PartRow]
    each: list[str]
    beside: list[str]
    margin: float


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


@dataclass(frozen=True)
class Definition:
    """A claim, and how it is decided. margin: in the unit of the measure."""

    name: str
    paper: str
    row: ClaimRow

    @property
    def source(self) -> str:
        where = self.row["where"]
        return where if where.startswith("nobody") else f"{self.paper}, {where}"

    @cached_property
    def measure(self) -> Measure:
        return MEASURES[self.row["measure"]]

    @cached_property
    def shows(self) -> Shows:
        return Shows(self.row["shows"])

    def margin(self, of_shares: float) -> float:
        """In the unit of the measure; that of shares is the user's, where the claim has none."""
        own = of_shares if self.measure.unit is Unit.points else self.measure.margin
        return self.row.get("margin", own)

    @property
    def part(self) -> tuple[str, PartRow] | None:
        """The part whose values are compared, of `more_than` or `against`."""
        rows = self.row.get("more_than") or self.row.get("against") or {}
        return next(iter(rows.items()), None)

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings in which compared conditions differ, apart from `part`."""
        return tuple(self.row.get("change") or self.row.get("slope") or ())


@dataclass(frozen=True)
class Registry:
    """The claims of a paper. gates: bounds of what evaluations record of the stages, by task."""

    path: Path
    title: str
    paper: str
    written: str
    gates: Mapping[str, Mapping[str, Bound]]
    changed: tuple[Change, ...]
    claims: tuple[Definition, ...]
    waiting: Mapping[str, str]


def read_registries(folder: Path = FOLDER) -> list[Registry]:
    """All files of claims, by name."""
    return [read_registry(path) for path in sorted(folder.glob("*.yaml"))]


def read_registry(path: Path) -> Registry:
    """A file of claims. Raises UserError with the claim, the key and the remedy."""
    try:
        given = read_yaml(path)
        file = checked(given, RegistryFile, path)
    except Unreadable as error:
        raise UserError(f"{error}: see the other files of {path.parent}") from error
    # What has passed the types holds known keys alone.
    refuse_unknown(path, "the file", given, RegistryFile)
    for name, row in file["claims"].items():
        refuse_unknown(path, name, given["claims"][name], ClaimRow)
        check_claim(path, name, row)
    return Registry(
        path,
        file["title"],
        file["paper"],
        str(file["written"]),
        file.get("gates", {}),
        tuple(file.get("changed", ())),
        tuple(Definition(name, file["paper"], row) for name, row in file["claims"].items()),
        file.get("waiting", {}),
    )


def check_claim(path: Path, name: str, row: ClaimRow) -> None:
    """Raise UserError for what the types alone do not refuse."""
    for measured in (row["measure"], *row.get("beside", ())):
        if measured not in MEASURES:
            raise wrong(path, name, "measure", measured, MEASURES)
    if row["shows"] not in set(Shows):
        raise wrong(path, name, "shows", row["shows"], [str(one) for one in Shows])
    for key, values in row.get("change", {}).items():
        if len(values) != 2:
            raise UserError(f"{path}: {name}: change.{key}={values}: pass [before, after]")
    measure = MEASURES[row["measure"]]
    if measure.of_one is None and not {"change", "against"} & set(row):
        raise UserError(
            f"{path}: {name}: measure={measure.name} compares two conditions: pass change or "
            "against, or another measure"
        )
    kinds = [key for key in ("change", "slope", "against") if key in row]
    if len(kinds) > 1 or ("more_than" in row and "change" not in row):
        raise UserError(
            f"{path}: {name} has {' and '.join(kinds) or 'more_than alone'}: pass one of change "
            "(with more_than or without), slope and against, or none to measure each condition"
        )


def refuse_unknown(path: Path, name: str, row: Mapping[str, Any], kind: type) -> None:
    if unknown := sorted(set(row) - set(kind.__annotations__)):
        raise wrong(path, name, "key", unknown[0], kind.__annotations__)


def wrong(path: Path, name: str, key: str, value: str, allowed: Any) -> UserError:
    return UserError(f"{path}: {name}: {key}={value}: choose one of {', '.join(sorted(allowed))}")
