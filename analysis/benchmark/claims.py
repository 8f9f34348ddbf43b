"""Which claims hold, at which scale, and from which runs.

rlhf-lab claims [SOURCE...]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.benchmark.kept import COLLAPSES, TABLES
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import Decision, Decisions, decide_all
from rlhf_lab_analysis.comparison.registry.definitions import FOLDER, read_registries
from rlhf_lab_analysis.comparison.registry.gates import gated
from rlhf_lab_analysis.comparison.registry.planning import WANTED_POWER
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.gather import gather

COLUMNS = ["claim", "setting", "verdict", "numbers", "interval", "power", "runs"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("sources", nargs="*", metavar="SOURCE", help="runs; without any, the tracked benchmark's")
    add("--claims", type=Path, default=FOLDER, help="the folder of files of claims")
    add("--only", metavar="NAME", help="claims whose names contain this")


def run(given: argparse.Namespace, console: Console) -> None:
    """Print the verdicts of all files of claims."""
    with console.phase("reading the runs"):
        tables = gather(given.sources or [str(TABLES), str(COLLAPSES)])
    # By the runs that the gates keep, which are the same for most files.
    selections: dict[frozenset[str], Selection] = {}
    for registry in read_registries(given.claims):
        with console.phase(f"deciding the claims of {registry.paper}"):
            kept, failed = gated(registry, tables)
            ids = frozenset(kept.runs["run"])
            if ids not in selections:
                selections[ids] = cells(kept)
            found = decide_all(registry, selections[ids], Criteria())
        rows, lines = rows_of(found, given.only), lines_of(found, given.only)
        if not rows and not lines:
            continue
        console.table(f"{registry.paper}: {registry.title}", COLUMNS, rows)
        for line in (*lines, *failed):
            console.print(line)


def rows_of(found: Decisions, only: str | None) -> list[list[str]]:
    return [row_of(one) for one in named(found, only)]


def named(found: Decisions, only: str | None) -> list[Decision]:
    """The decisions of claims whose names contain a text; all without one."""
    return [one for one in found.decided if not only or only in one.claim.name]


def row_of(one: Decision) -> list[str]:
    made = one.answer
    return [
        one.claim.name,
        made.setting,
        str(made.verdict),
        made.evidence,
        one.family,
        power_text(one),
        made.runs,
    ]


def power_text(one: Decision) -> str:
    """Planned and reached power."""
    reached = "-" if one.reached is None else f"{one.reached:.2f}"
    return f"{one.planned:.2f} planned, {reached} reached"


def open_lines(decided: Sequence[Decision]) -> list[str]:
    """What would decide each claim that cannot be decided."""
    return [
        f"{one.claim.name} ({one.answer.setting}): {needed_text(one)}"
        for one in decided
        if one.answer.verdict is Verdict.cannot_tell
    ]


def needed_text(one: Decision) -> str:
    """The stage seeds and core-hours that would decide a claim at its next look."""
    if one.needed is None:
        return "fewer than 10,000 stage seeds do not decide it, or nothing gives their spread"
    seeds, hours = one.needed
    return (
        f"{seeds} stage seeds in all, {hours:.1f} core-hours, decide it with a power of "
        f"{WANTED_POWER:.2f} if the measured difference is the true one"
    )


def lines_of(found: Decisions, only: str | None) -> list[str]:
    """What has no verdict, or an open one, and why."""
    wanted = [one for one in found.waiting if not only or only in one.name]
    idle = [line for line in found.idle if not only or only in line]
    lines = [f"waits for runs: {one.name} (make sweep SWEEP={one.row['sweep']})" for one in wanted]
    undecided = [f"not decided: {line}" for line in open_lines(named(found, only))]
    return [*undecided, *idle, *lines]
