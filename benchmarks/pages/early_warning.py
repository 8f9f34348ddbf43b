"""Which logged signal warns of a collapse, and how long before?

python -m benchmarks.pages.early_warning [TABLES...] [--docs docs/warnings.md]

TABLES: runs or tables with all rounds of runs of which some collapse; without any, those of
`staleness_rate_nano` that are kept in `analysis/benchmark/collapses.parquet`. The question stands
in arXiv:2602.17616, which has ESS and gradient norm predict collapse, and in reports that neither
did.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.pages.warning_signals import (
    FALSE_ALARMS,
    WINDOW,
    Concordance,
    Course,
    alarms,
    concordance,
)
from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.comparison.stable_rates import REWARD
from rlhf_lab_analysis.markdown import Table, publish
from rlhf_lab_analysis.statistics.collapse import DEFAULT, collapse_at
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.words import UPDATES

TRACKED = Path(__file__).parents[2] / "analysis" / "benchmark" / "collapses.parquet"
SWEEP = "staleness_rate_nano"
LEADS = (1, 4, 8, 16)
# The direction that alarms, chosen before any was scored: 1 where high values are thought to come
# before a collapse, -1 where low ones are.
SIGNALS = {
    "ratio/ess": -1,
    "ratio/max": 1,
    "ratio/clipped": 1,
    "kl/behavior_policy_k3": 1,
    "kl/policy_reference_k1": 1,
    "update/grad_norm": 1,
    "update/gradient_cosine": 1,
    "update/entropy": -1,
    "update/loss": 1,
    "reward/std": -1,
    "sample/length": -1,
}
# Runs of one stratum are compared.
Stratum = Callable[[Cell], Hashable]


def by_algorithm(cell: Cell) -> Hashable:
    return str(cell.parts["algo"])


STRATA: Mapping[str, Stratum] = {
    "AUROC among the runs of an algorithm": by_algorithm,
    "AUROC among the runs of an algorithm and a staleness": lambda cell: (
        by_algorithm(cell),
        cell.parts.get("max_staleness"),
    ),
    "AUROC among the seeds of one setting": lambda cell: cell.condition,
}


@dataclass(frozen=True)
class Run:
    """The rounds of a run, and the one at which it collapses."""

    cell: Cell
    rounds: pd.DataFrame
    collapse: int | None

    def course(self, signal: str, stratum: Hashable) -> Course:
        """The course of a signal."""
        values_R = SIGNALS[signal] * self.rounds[signal].to_numpy(float)
        return Course(stratum, values_R, self.collapse)


def runs_of(selection: Selection) -> list[Run]:
    """Every run that is long enough to be scored."""
    found = []
    for cell in selection.cells:
        for rows in cell.recorded.values():
            rounds: pd.DataFrame = rows[rows[UPDATES].notna()]
            if len(rounds) >= DEFAULT.window:
                found.append(Run(cell, rounds, collapse_at(rounds[REWARD].to_numpy(float))))
    return found


def courses_of(runs: Sequence[Run], signal: str, stratum: Stratum) -> list[Course]:
    """The course of a signal in each run that has it."""
    return [run.course(signal, stratum(run.cell)) for run in runs if signal in run.rounds]


def auroc_text(found: Concordance) -> str:
    """AUROC with its interval; a dash without pairs."""
    text = f"{found.auroc:.2f} [{found.low:.2f}, {found.high:.2f}]"
    return "-" if np.isnan(found.auroc) else text


def auroc_table(runs: Sequence[Run], title: str, stratum: Stratum) -> Table:
    """A row for each signal: AUROC at each lead."""
    rows, counts = [], list[str]()
    for signal in SIGNALS:
        courses = courses_of(runs, signal, stratum)
        if not any(np.isfinite(one.signal_R).any() for one in courses):
            continue
        made = [concordance(courses, lead) for lead in LEADS]
        counts = [f"{one.collapsed} / {one.stable}" for one in made]
        rows.append([name_of(signal), *(auroc_text(one) for one in made)])
    rows.append(["collapsed / stable runs in pairs", *counts])
    return Table(title, ["signal", *(f"{lead} rounds before" for lead in LEADS)], rows)


def name_of(signal: str) -> str:
    return f"`{signal}`, {'high' if SIGNALS[signal] > 0 else 'low'}"


def alarm_table(runs: Sequence[Run]) -> Table:
    """A row for each signal: what it warned of when one of ten stable runs may alarm."""
    rows = []
    for signal in SIGNALS:
        found = alarms(courses_of(runs, signal, by_algorithm))
        if found.collapsed:
            warned = f"{found.warned} of {found.collapsed}"
            lead = "-" if np.isnan(found.median_lead) else f"{found.median_lead:g}"
            false = f"{found.false_alarms} of {found.stable}"
            rows.append([name_of(signal), warned, lead, false])
    columns = ["signal", "collapses warned of", "median lead, rounds", "false alarms"]
    return Table(f"Alarms when at most {FALSE_ALARMS:.0%} of stable runs may alarm", columns, rows)


def run(given: argparse.Namespace, console: Console) -> None:
    """Score every signal, and print or publish the tables. Raises UserError if no run collapses, or
    all do."""
    runs = runs_of(cells(gather(given.tables or [str(TRACKED)])))
    rounds = sorted(one.collapse + 1 for one in runs if one.collapse is not None)
    fallen, stable = len(rounds), len(runs) - len(rounds)
    if not fallen or not stable:
        raise UserError(
            f"{counted(fallen, 'run')} collapsed and {stable} did not: a warning is a difference "
            f"between both; pass runs such as those of `make sweep SWEEP={SWEEP}`"
        )
    caption = (
        f"{counted(fallen + stable, 'run')}: {fallen} collapsed, at rounds {rounds[0]} to "
        f"{rounds[-1]} (median {int(np.median(rounds))}), and {stable} did not."
    )
    notes = [
        f"A signal is read as its mean over the last {WINDOW} rounds. Intervals are of 95% "
        "over runs, by bootstrap."
    ]
    tables = [auroc_table(runs, title, stratum) for title, stratum in STRATA.items()]
    publish(caption, notes, [*tables, alarm_table(runs)], given.docs, console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 on a wrong option or runs of which none collapses."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages.early_warning", description=__doc__
    )
    parser.add_argument("tables", nargs="*", metavar="TABLES", help="runs, or tables of them")
    parser.add_argument("--docs", type=Path, help="the page whose tables are rewritten")
    given = parser.parse_args(arguments)
    return exit_code("warnings", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
