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
# The source of a claim that is of this project alone.
NO_PAPER = "in no paper"


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
    source: Required[str]
    sweep: str
    runs: Required[dict[str, Any]]
    change: dict[str, list[Any]]
    more_than: dict[str, PartRow]
    each: list[str]
    measure: Required[str]
    beside: list[str]
    shows: Required[str]
    margin: float
    looks: int
    plan: PlanRow


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
    """A claim, and how it is decided."""

    name: str
    paper: str
    row: ClaimRow

    @property
    def source(self) -> str:
        own = self.row["source"]
        return own if own.startswith(NO_PAPER) else f"{self.paper}, {own}"

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
    def looks(self) -> int:
        """How often it was decided while seeds were added. The last look is at the error of 5%
        divided by it."""
        return self.row.get("looks", 1)

    @property
    def is_general(self) -> bool:
        """Whether it is a question of any runs, with words for levels and without a plan."""
        return "plan" not in self.row

    @property
    def part(self) -> tuple[str, PartRow] | None:
        """The part whose values are compared."""
        return next(iter(self.row.get("more_than", {}).items()), None)

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings in which compared conditions differ, apart from `part`."""
        return tuple(self.row.get("change", ()))

    @property
    def making(self) -> str:
        """How to make its runs: by its sweep, else with which settings."""
        if "sweep" in self.row:
            return f"make sweep SWEEP={self.row['sweep']}"
        settings = {**self.row["runs"], **self.row.get("change", {})}
        return "runs with " + " ".join(f"{key}={value}" for key, value in settings.items())


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

    @property
    def is_general(self) -> bool:
        return all(claim.is_general for claim in self.claims)


def read_registries(folder: Path = FOLDER) -> list[Registry]:
    """All files of claims, in the order in which they were written, and by name; those of any runs
    last."""
    found = [read_registry(path) for path in sorted(folder.glob("*.yaml"))]
    return sorted(found, key=lambda registry: (registry.is_general, registry.written))


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
    if row["measure"] not in MEASURES:
        raise wrong(path, name, "measure", row["measure"], MEASURES)
    if row["shows"] not in set(Shows):
        raise wrong(path, name, "shows", row["shows"], [str(one) for one in Shows])
    if row.get("looks", 1) < 1:
        raise UserError(f"{path}: {name}: looks={row['looks']}: pass 1 or more")
    of_two = [one.name for one in MEASURES.values() if one.of_pair]
    for beside in row.get("beside", ()):
        if beside not in of_two:
            raise wrong(path, name, "beside", beside, of_two)
    check_change(path, name, row)


def check_change(path: Path, name: str, row: ClaimRow) -> None:
    """Raise UserError for a change that the measure does not compare."""
    measure, change = MEASURES[row["measure"]], row.get("change", {})
    if measure.of_many:
        if len(change) != measure.keys or "more_than" in row:
            raise UserError(
                f"{path}: {name}: measure={measure.name} is of conditions over "
                f"{measure.keys} settings: pass these with all of their levels as change alone"
            )
        return
    for key, values in change.items():
        if len(values) != 2:
            raise UserError(f"{path}: {name}: change.{key}={values}: pass [before, after]")
    if measure.of_one is None and not change and "more_than" not in row:
        raise UserError(
            f"{path}: {name}: measure={measure.name} compares two conditions: pass change or "
            "more_than, or another measure"
        )


def refuse_unknown(path: Path, name: str, row: Mapping[str, Any], kind: type) -> None:
    if unknown := sorted(set(row) - set(kind.__annotations__)):
        raise wrong(path, name, "key", unknown[0], kind.__annotations__)


def wrong(path: Path, name: str, key: str, value: str, allowed: Any) -> UserError:
    return UserError(f"{path}: {name}: {key}={value}: choose one of {', '.join(sorted(allowed))}")
