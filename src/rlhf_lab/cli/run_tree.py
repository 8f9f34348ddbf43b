"""Runs with their forks below them, for `rlhf-lab runs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.manifest import fork_changes
from rlhf_lab.runs.summaries import RunSummary

# Changes that a line names; the manifest and --json have all.
SHOWN = 3


def in_tree(runs: Sequence[RunSummary]) -> list[tuple[int, RunSummary]]:
    """The runs in their order, each followed by its forks, with the number of runs above it. A fork
    whose parent is not among them stands alone."""
    parents = {id(run): parent_of(run, runs) for run in runs}
    found: list[tuple[int, RunSummary]] = []
    for run in runs:
        if parents[id(run)] is None:
            found += below(run, runs, parents, 0)
    # Damaged manifests could name each other.
    shown = {id(run) for _, run in found}
    return [*found, *((0, run) for run in runs if id(run) not in shown)]


def below(
    run: RunSummary,
    runs: Sequence[RunSummary],
    parents: dict[int, RunSummary | None],
    depth: int,
) -> Iterator[tuple[int, RunSummary]]:
    """A run and all forks of it and of those."""
    yield depth, run
    for other in runs:
        if parents[id(other)] is run:
            yield from below(other, runs, parents, depth + 1)


def parent_of(run: RunSummary, runs: Sequence[RunSummary]) -> RunSummary | None:
    """The run that one is a fork of. Parents are older, so that no run is below itself."""
    fork = fork_in(run)
    for other in runs if fork else ():
        is_parent = other.manifest.get("run_id") == fork["parent_id"] != ""
        if is_parent and other.manifest.get("started", "") <= run.manifest.get("started", ""):
            return other if other is not run else None
    return None


def branch(depth: int) -> str:
    """What stands before a run's name. No spaces lead: cells of plain text lose them."""
    return f"└{'─' * (depth - 1)} " if depth else ""


def fork_in(run: RunSummary) -> dict[str, Any]:
    """What a run's manifest has about its parent; empty for a run of its own."""
    return dict(run.manifest.get("fork") or {})


def fork_text(run: RunSummary) -> str:
    """Parent, round and changes of a fork in one line; "" for a run of its own."""
    fork = fork_in(run)
    if not fork:
        return ""
    changes = fork_changes(fork)
    more = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    what = ", ".join(changes[:SHOWN]) + more if changes else "no change"
    return f"{Path(fork['parent']).name} at round {fork['round']}: {what}"
