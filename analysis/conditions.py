"""Runs by algorithm, condition and seed: who stands where, and what they must share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare import Row, Run
from rlhf_lab.types.errors import UserError


@dataclass(frozen=True, order=True)
class Condition:
    """How stale the samples are. lagged counts as async: it is the same bit for bit."""

    updates_per_round: int
    max_staleness: int
    mode: str

    @property
    def title(self) -> str:
        """The head of its column: `sync`, `async S=1`, `N=16`, `async S=1, N=16`."""
        many = f"N={self.updates_per_round}" if self.updates_per_round > 1 else ""
        if self.mode == "sync":
            return many or "sync"
        return ", ".join(filter(None, [f"{self.mode} S={self.max_staleness}", many]))


SYNC = Condition(1, 0, "sync")
ASYNC = Condition(1, 1, "async")

# For each algorithm and condition, the run of each seed.
Cells = Mapping[tuple[str, Condition], Mapping[int, Run]]


def settings(run: Run) -> Row:
    try:
        found: Row = run.manifest["settings"]
    except LookupError as error:
        raise UserError(
            f"{run.folder} has no settings in its manifest (it is older than this command): train "
            "it again, or leave it out"
        ) from error
    return found


def place(run: Run) -> tuple[str, Condition]:
    """The row and column that a run belongs to."""
    given, mode = settings(run), run.manifest["mode"]
    correction = run.manifest.get("correction", "none")
    own = "" if correction == "none" else f", {correction}"
    condition = Condition(
        given["updates_per_round"],
        0 if mode == "sync" else given["max_staleness"],
        "async" if mode == "lagged" else mode,
    )
    return f"{run.manifest['algo']}{own}", condition


def cells_of(runs: Sequence[Run]) -> Cells:
    """The runs by algorithm, condition and seed. Raises UserError if two take the same place."""
    cells: dict[tuple[str, Condition], dict[int, Run]] = {}
    for run in runs:
        algorithm, condition = place(run)
        held = cells.setdefault((algorithm, condition), {})
        other = held.setdefault(run.manifest["seed"], run)
        if other is not run:
            raise UserError(
                f"seed={run.manifest['seed']} of {algorithm}, {condition.title} occurs twice, in "
                f"{other.folder} and {run.folder}: pass one of them"
            )
    return cells


def algorithms(cells: Cells) -> list[str]:
    return sorted({algorithm for algorithm, _ in cells})


def conditions(cells: Cells) -> list[Condition]:
    return sorted({condition for _, condition in cells})


def seeds(cells: Cells) -> list[int]:
    return sorted({seed for held in cells.values() for seed in held})


def missing_seeds(cells: Cells) -> list[str]:
    """A line for each algorithm and condition whose seeds are not all those that occur."""
    lines = []
    for (algorithm, condition), held in sorted(cells.items()):
        if missing := [str(seed) for seed in seeds(cells) if seed not in held]:
            lines.append(f"{algorithm}, {condition.title}: no run of seed {', '.join(missing)}")
    return lines


def setup(run: Run) -> dict[str, Any]:
    """What runs must share, so that a table is about algorithm, condition and seed alone."""
    given = settings(run)
    return {
        **{key: run.manifest[key] for key in ("task", "model")},
        **{key: given[key] for key in ("updates", "groups_per_update", "passes")},
        "eval.prompts": run.evals[-1]["eval/prompts"],
    }


def group_sizes(cells: Cells) -> dict[int, list[str]]:
    """Algorithms by their K, the K of most of them first. Raises UserError if one has two."""
    sizes: dict[str, int] = {}
    for (algorithm, _), held in cells.items():
        for run in held.values():
            size = settings(run)["group_size"]
            if sizes.setdefault(algorithm, size) != size:
                raise UserError(
                    f"group_size={size} in {run.folder}, but group_size={sizes[algorithm]} in "
                    f"other runs of {algorithm}: pass runs that differ in mode, N and seed alone"
                )
    found: dict[int, list[str]] = {}
    for algorithm, size in sizes.items():
        found.setdefault(size, []).append(algorithm)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def common_setup(runs: Sequence[Run]) -> Row:
    """The setup of all runs. Raises UserError if one differs."""
    first = setup(runs[0])
    for run in runs:
        for key, value in setup(run).items():
            if value != first[key]:
                raise UserError(
                    f"{key}={value} in {run.folder}, but {key}={first[key]} in {runs[0].folder}: "
                    "pass runs that differ in algorithm, mode, N and seed alone"
                )
    return first
