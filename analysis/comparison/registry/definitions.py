"""Read the files of claims, `analysis/claims/PAPER.yaml`, and refuse what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from rlhf_lab.runs.reading import Unreadable, checked, read_yaml
from rlhf_lab.sweeps.options import sweep_file
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.registry.measures import MEASURES, Measure
from rlhf_lab_analysis.statistics.decisions import Shows

FOLDER = Path(__file__).parents[2] / "claims"
# The source of a claim that is of this project alone.
NO_PAPER = "in no paper"
# In `sweep`: where no runs of the named sweeps are given, those of any sweep decide the claim.
ANY = "any"
only_these_keys = with_config(ConfigDict(extra="forbid"))


def listed(value: str | list[str]) -> list[str]:
    """One name or several as a list."""
    return [value] if isinstance(value, str) else value


@only_these_keys
class Plan(TypedDict, total=False):
    """truth: the difference that is expected. spread: standard deviation over stage seeds. looks:
    how often the claim was decided while seeds were added, 1 unless given; the last look has the
    error of 5% divided by it."""

    truth: Required[float]
    spread: Required[float]
    looks: Annotated[int, Field(ge=1)]


@only_these_keys
class ClaimRow(TypedDict, total=False):
    """A claim as its file has it: docs/benchmark.md, "A claim"."""

    text: Required[str]
    source: Required[str]
    sweep: str | list[str]
    runs: dict[str, Any]
    change: dict[str, list[Any]]
    more_than: Annotated[
        dict[str, Annotated[list[Any], Field(min_length=2, max_length=2)]], Field(max_length=1)
    ]
    measure: Required[str | list[str]]
    shows: Required[Literal["below", "above", "equal", "not worse"]]
    plan: Plan


@only_these_keys
class Bound(TypedDict, total=False):
    """The least or the most that an evaluation's number may be."""

    least: float
    most: float


@only_these_keys
class Change(TypedDict):
    """A later change of the file: when, what, and why."""

    date: str
    what: str


def checked_claim(row: ClaimRow) -> ClaimRow:
    """The claim, if there are its sweeps and measures, and these compare what it changes. Raises
    ValueError, of which UserError is one."""
    for sweep in {*listed(row.get("sweep", ANY))} - {ANY}:
        sweep_file(sweep)
    names, change = listed(row["measure"]), row.get("change", {})
    if unknown := [name for name in names if name not in MEASURES]:
        raise ValueError(f"measure={unknown[0]}: choose one of {', '.join(sorted(MEASURES))}")
    measure, *beside = (MEASURES[name] for name in names)
    if of_many := [one.name for one in beside if one.of_many]:
        raise ValueError(f"measure={of_many[0]}: it is of many conditions: pass it alone")
    if measure.of_many:
        if len(change) != measure.keys or "more_than" in row:
            raise ValueError(
                f"measure={measure.name} is of conditions over {measure.keys} settings: pass these "
                "with all of their levels as change alone"
            )
    elif wrong := [key for key, values in change.items() if len(values) != 2]:
        raise ValueError(f"change.{wrong[0]}={change[wrong[0]]}: pass [before, after]")
    elif measure.of_two and not change and "more_than" not in row:
        raise ValueError(f"measure={measure.name} is of two conditions: pass change or more_than")
    return row


@only_these_keys
class RegistryFile(TypedDict, total=False):
    """The whole file. claims: by question and name."""

    paper: Required[str]
    title: Required[str]
    written: Required[str]
    gates: dict[str, dict[str, Bound]]
    changed: list[Change]
    claims: Required[dict[str, dict[str, Annotated[ClaimRow, AfterValidator(checked_claim)]]]]
    waiting: dict[str, str]


@dataclass(frozen=True)
class Definition:
    """A claim, and how it is decided."""

    name: str
    question: str
    paper: str
    row: ClaimRow

    @property
    def source(self) -> str:
        own = self.row["source"]
        return own if own.startswith(NO_PAPER) else f"{self.paper}, {own}"

    @cached_property
    def measures(self) -> list[Measure]:
        """The measure that decides, and those that are shown beside it."""
        return [MEASURES[name] for name in listed(self.row["measure"])]

    @property
    def measure(self) -> Measure:
        return self.measures[0]

    @property
    def shows(self) -> Shows:
        return Shows(self.row["shows"])

    @property
    def looks(self) -> int:
        """How often it was decided while seeds were added."""
        return self.row["plan"].get("looks", 1) if "plan" in self.row else 1

    @property
    def is_general(self) -> bool:
        """Whether it is a question of any runs, with words for levels and without a plan."""
        return "plan" not in self.row

    @property
    def sweeps(self) -> list[str]:
        """The sweeps that make its runs."""
        return [sweep for sweep in listed(self.row.get("sweep", [])) if sweep != ANY]

    @property
    def takes_any(self) -> bool:
        """Whether runs of any sweep decide it where no runs of the named ones are given."""
        return ANY in listed(self.row.get("sweep", ANY))

    @property
    def part(self) -> tuple[str, list[Any]] | None:
        """The part whose values are compared: to which, and which."""
        return next(iter(self.row.get("more_than", {}).items()), None)

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings in which compared conditions differ, apart from `part`."""
        return tuple(self.row.get("change", ()))

    @property
    def making(self) -> str:
        """How to make its runs: by its sweep, else with which settings."""
        if self.sweeps:
            return f"make sweep SWEEP={self.sweeps[0]}"
        settings = {**self.row.get("runs", {}), **self.row.get("change", {})}
        return "runs with " + " ".join(f"{key}={value}" for key, value in settings.items())


@dataclass(frozen=True)
class Registry:
    """A file of claims. gates: bounds of what evaluations record of the stages, by task. claims: in
    order."""

    path: Path
    file: RegistryFile
    gates: Mapping[str, Mapping[str, Bound]]
    claims: tuple[Definition, ...]

    @property
    def is_general(self) -> bool:
        return all(claim.is_general for claim in self.claims)


def read_registries(folder: Path = FOLDER) -> list[Registry]:
    """All files of claims, in the order in which they were written, and by name; those of any runs
    last."""
    found = [read_registry(path) for path in sorted(folder.glob("*.yaml"))]
    return sorted(found, key=lambda registry: (registry.is_general, registry.file["written"]))


def read_registry(path: Path) -> Registry:
    """A file of claims. Raises UserError with the claim, the key, the value and the remedy."""
    try:
        file = checked(read_yaml(path), RegistryFile, path)
    except Unreadable as error:
        keys = ", ".join(ClaimRow.__annotations__)
        raise UserError(f"{error}. A claim has {keys}: see the files of {FOLDER}") from error
    claims = [
        Definition(name, question, file["paper"], row)
        for question, rows in file["claims"].items()
        for name, row in rows.items()
    ]
    return Registry(path, file, file.get("gates", {}), tuple(claims))
