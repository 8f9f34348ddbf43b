"""Which claims hold, at which scale, and from which runs.

rlhf-lab claims [RUNS...]
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab_analysis.benchmark.kept import COLLAPSES, TABLES
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import WANTED_POWER, Decision, Decisions
from rlhf_lab_analysis.comparison.registry.definitions import FOLDER, read_registries
from rlhf_lab_analysis.comparison.registry.questions import answers_of
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.gather import gather

COLUMNS = ["claim", "setting", "effect", "verdict", "interval", "expected", "runs"]
# In the order in which a narrow terminal leaves them out.
DROPPED = ["runs", "expected", "interval", "effect", "setting"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("sources", nargs="*", metavar="RUNS", help="without any, the tracked benchmark's")
    add("--claims", type=Path, default=FOLDER, help="the folder of files of claims")
    add("--only", default="", metavar="NAME", help="claims whose names contain this")


def run(given: argparse.Namespace, console: Console) -> None:
    """Print what these runs show of the claims of all files."""
    with console.phase("reading the runs"):
        selection = cells(gather(given.sources or [str(TABLES), str(COLLAPSES)]))
    with console.phase("deciding the claims"):
        answers = answers_of(selection, Criteria(), read_registries(given.claims))
    without = []
    for found in answers.judged:
        file, name = found.registry.file, found.registry.path.name
        shown = [one for one in found.decided if given.only in one.claim.name]
        rows = [[one.claim.name, *row_of(one)] for one in shown]
        if not rows and not given.only:
            without.append(name)
            continue
        if rows:
            console.table(f"{file['paper']}: {file['title']}", COLUMNS, rows, drop=DROPPED)
        for line in lines_of(found, given.only):
            console.print(line)
    if without:
        console.print(f"no claim of {', '.join(without)} has its runs among these")
    for line in answers.left_out:
        console.print(line)
    shown = [one for one in answers.decided if given.only in one.claim.name]
    planned = [one for one in shown if not one.claim.is_general]
    console.print(f"claims with a plan: {verdicts_text(planned)}")
    console.print(f"with questions of any runs: {verdicts_text(shown)}")


def row_of(one: Decision) -> list[str]:
    """The setting, the effect with its interval, then the verdict: COLUMNS after the claim."""
    made = one.answer
    verdict = str(made.verdict)
    return [made.setting, made.evidence, verdict, one.family, one.expected, made.runs]


def verdicts_text(every: Sequence[Decision]) -> str:
    """How many verdicts there are of each kind."""
    counts = Counter(one.answer.verdict for one in every)
    kinds = ", ".join(f"{verdict} {counts[verdict]}" for verdict in Verdict if counts[verdict])
    return f"{counted(len(every), 'verdict')}: {kinds or 'none'}."


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


def lines_of(found: Decisions, only: str) -> list[str]:
    """What has no verdict, or an open one, and why."""
    decided = [one for one in found.decided if only in one.claim.name]
    waiting = [one for one in found.waiting if only in one.name and not one.is_general]
    return [
        *(f"not decided: {line}" for line in open_lines(decided)),
        *(f"waits for runs: {one.name} ({one.making})" for one in waiting),
    ]
