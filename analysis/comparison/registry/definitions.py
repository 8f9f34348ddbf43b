"""Read the files of claims, `analysis/claims/PAPER.yaml`, and refuse what is wrong in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlhf_lab.runs.reading import Unreadable, checked, read_yaml
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.registry.answers import Unit
from rlhf_lab_analysis.comparison.registry.measures import BOUNDARY, MEASURES, Measure
from rlhf_lab_analysis.comparison.registry.rows import (
    Bound,
    Change,
    ClaimRow,
    PartRow,
    RegistryFile,
)
from rlhf_lab_analysis.statistics.decisions import Shows

FOLDER = Path(__file__).parents[2] / "claims"
# Where a claim is found that is of this project alone.
NO_PAPER = "in no paper"


@dataclass(frozen=True)
class Definition:
    """A claim, and how it is decided. margin: in the unit of the measure."""

    name: str
    paper: str
    row: ClaimRow

    @property
    def source(self) -> str:
        where = self.row["where"]
        return where if where.startswith(NO_PAPER) else f"{self.paper}, {where}"

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
        """How often it was decided while seeds were added: the error of 5% is shared by all looks
        (Bonferroni), so that adding seeds until it holds does not make it hold."""
        return self.row.get("looks", 1)

    @property
    def part(self) -> tuple[str, PartRow] | None:
        """The part whose values are compared, of `more_than` or `against`."""
        rows = self.row.get("more_than") or self.row.get("against") or {}
        return next(iter(rows.items()), None)

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings in which compared conditions differ, apart from `part`."""
        boundary: Mapping[str, Any] = self.row.get("boundary", {})
        return tuple(self.row.get("change") or self.row.get("slope") or boundary.values())


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
    """All files of claims, in the order in which they were written, and by name."""
    found = [read_registry(path) for path in sorted(folder.glob("*.yaml"))]
    return sorted(found, key=lambda registry: registry.written)


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
    for key, values in row.get("change", {}).items():
        if len(values) != 2:
            raise UserError(f"{path}: {name}: change.{key}={values}: pass [before, after]")
    if row.get("looks", 1) < 1:
        raise UserError(f"{path}: {name}: looks={row['looks']}: pass 1 or more")
    measure = MEASURES[row["measure"]]
    if (measure.name == BOUNDARY) != ("boundary" in row) or ("than" in row) > ("boundary" in row):
        raise UserError(
            f"{path}: {name}: measure={measure.name}: {BOUNDARY} and boundary go together, and "
            "than with them; pass boundary: {rate: ..., over: ...}"
        )
    if measure.of_one is None and not {"change", "against", "boundary"} & set(row):
        raise UserError(
            f"{path}: {name}: measure={measure.name} compares two conditions: pass change or "
            "against, or another measure"
        )
    check_kind(path, name, row)


def check_kind(path: Path, name: str, row: ClaimRow) -> None:
    """A claim compares in one way, and shows beside it what two conditions have."""
    of_two = [one.name for one in MEASURES.values() if one.of_pair]
    for beside in row.get("beside", ()):
        if beside not in of_two:
            raise wrong(path, name, "beside", beside, of_two)
    kinds = [key for key in ("change", "slope", "against", "boundary") if key in row]
    if len(kinds) > 1 or ("more_than" in row and "change" not in row):
        raise UserError(
            f"{path}: {name} has {' and '.join(kinds) or 'more_than alone'}: pass one of change "
            "(with more_than or without), slope, against and boundary, or none to measure each "
            "condition"
        )


def refuse_unknown(path: Path, name: str, row: Mapping[str, Any], kind: type) -> None:
    if unknown := sorted(set(row) - set(kind.__annotations__)):
        raise wrong(path, name, "key", unknown[0], kind.__annotations__)


def wrong(path: Path, name: str, key: str, value: str, allowed: Any) -> UserError:
    return UserError(f"{path}: {name}: {key}={value}: choose one of {', '.join(sorted(allowed))}")
