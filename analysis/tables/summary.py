"""Print a selection of runs in the terminal: runs by condition and seed, then the findings."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.tables.table import Tables

COLUMNS = ("env", "condition", "sweep", "runs", "seeds", "points", "versions", "from", "code")
# Findings of a kind that are shown one by one; the table of findings has all.
SHOWN = 5
NO_SEED = "none"


def show(tables: Tables, console: Console) -> None:
    """Print the selection and its findings."""
    console.print(tables.overview)
    rows = [[printable(text) for text in row] for row in condition_rows(tables.runs)]
    console.table("runs", COLUMNS, rows)
    if not tables.findings:
        console.print("no findings")
        return
    console.print(f"{counted(len(tables.findings), 'finding')}:")
    for line in finding_lines(tables.findings):
        console.print(printable(line))


def show_damage(tables: Tables, console: Console) -> None:
    """Print what was read in part, or is not what a run wrote: a result may rest on it."""
    for line in finding_lines([one for one in tables.findings if one.kind is Kind.damaged]):
        console.print(printable(line))


def printable(text: str) -> str:
    """A text on one line, with what would move a terminal's cursor written out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def condition_rows(runs: pd.DataFrame) -> list[list[str]]:
    """A row for each environment and condition."""
    return [
        [
            str(env),
            str(condition),
            joined(held["sweep"]),
            str(len(held)),
            seeds_of(held["seed"]),
            span(held["points"]),
            span(held["versions"]),
            joined(held["source"]),
            joined(held["code"].str[:8]),
        ]
        for (env, condition), held in runs.groupby(["env_id", "condition"], sort=True)
    ]


def seeds_of(seeds: pd.Series) -> str:
    """Every seed, as often as it is there."""
    return ", ".join(NO_SEED if pd.isna(seed) else str(seed) for seed in seeds)


def joined(texts: pd.Series) -> str:
    return ", ".join(dict.fromkeys(str(text) for text in texts if text))


def span(counts: pd.Series) -> str:
    """A count, or the least and the most."""
    least, most = int(counts.min()), int(counts.max())
    return str(least) if least == most else f"{least} to {most}"


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """The findings kind by kind, the first few of each."""
    lines = []
    for kind in dict.fromkeys(finding.kind for finding in findings):
        same = [finding for finding in findings if finding.kind is kind]
        lines += [f"  {finding.line}" for finding in same[:SHOWN]]
        if len(same) > SHOWN:
            lines.append(f"  {kind}: {len(same) - SHOWN} more (--out FILE.csv has all)")
    return lines
