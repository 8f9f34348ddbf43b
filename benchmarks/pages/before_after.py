"""Compare gold scores of the first and the last saved version, by split and seed.

python -m benchmarks.pages.before_after RUNS...

RUNS are folders of runs, or folders that hold runs.

Every evaluation of a run counts: `rlhf-lab evaluate RUN eval.split=test eval.label=test` adds a
row for each run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.pages.seeds import mean_text, select_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.tables.table import Tables

COLUMNS = ["condition", "evaluated", "seed", "prompts", "before", "after", "change", "KL nats"]
TRAINING = "training prompts"
GENERATED = "reward/mean_generated"
DRIFT = "kl/sampled_reference_k1"
SCORES = ("eval/prompts", "gold/mean", "kl/sft_k1")


@dataclass(frozen=True)
class Change:
    """Mean gold score over some prompts before and after training. kl: to SFT, in nats."""

    condition: str
    prompts_of: str
    seed: int
    prompts: int
    before: float
    after: float
    kl: float

    @property
    def size(self) -> float:
        return self.after - self.before


def changes_of(tables: Tables, cell: Cell, seed: int) -> list[Change]:
    """The changes of a run on each set of prompts, and in training: from the first to the last
    quarter of the rounds, over everything that was generated."""
    rows = tables.versions[tables.versions["run"] == cell.runs[seed]["run"]]
    changes = [
        evaluated_change(cell, seed, str(label), own.sort_values("version"))
        for label, own in rows.groupby("label", sort=True)
        if "gold/mean" in own and own["gold/mean"].notna().any()
    ]
    rounds = cell.recorded[seed]
    if {GENERATED, DRIFT} <= set(rounds) and not rounds[[GENERATED, DRIFT]].isna().any(axis=None):
        quarter = max(1, len(rounds) // 4)
        before, after = (float(p[GENERATED].mean()) for p in (rounds[:quarter], rounds[-quarter:]))
        prompts, kl = int(rounds["x/prompts"].iloc[quarter - 1]), float(rounds[DRIFT].iloc[-1])
        changes.append(Change(cell.condition, TRAINING, seed, prompts, before, after, kl))
    return changes


def evaluated_change(cell: Cell, seed: int, label: str, rows: pd.DataFrame) -> Change:
    """From the first to the last version of one set of prompts. Raises UserError if version 0 was
    not evaluated, or a score is missing."""
    if rows["version"].iloc[0] != 0:
        raise UserError(
            f"evaluations {label!r} do not begin with version 0: evaluate the run again with "
            "eval.snapshots=1 or more"
        )
    if not set(SCORES) <= set(rows) or rows[list(SCORES)].isna().any(axis=None):
        raise UserError(f"evaluations {label!r} do not all have {', '.join(SCORES)}")
    first, last = rows.iloc[0], rows.iloc[-1]
    name = label or str(last.get("eval/split") or "evals")
    prompts, before, after = int(last["eval/prompts"]), first["gold/mean"], last["gold/mean"]
    return Change(cell.condition, name, seed, prompts, before, after, float(last["kl/sft_k1"]))


def rows_of(changes: Sequence[Change]) -> list[list[str]]:
    """A row for each change, and their means over seeds below those of the same prompts."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.condition, change.prompts_of), []).append(change)
    rows = []
    for names, own in groups.items():
        for one in sorted(own, key=lambda one: one.seed):
            scores = (f"{one.before:.3f}", f"{one.after:.3f}", f"{one.size:+.3f}")
            rows.append([*names, str(one.seed), str(one.prompts), *scores, f"{one.kl:.2f}"])
        if len(own) > 1:
            means = [
                mean_text({one.seed: getattr(one, name) for one in own}, 3)
                for name in ("before", "after", "size")
            ]
            rows.append([*names, "mean [95% t]", "", *means, ""])
    return rows


def report(folders: Sequence[Path], console: Console) -> None:
    """Print how the runs in these folders changed."""
    tables, selection = select_runs(folders, console)
    changes: list[Change] = []
    for cell in selection.cells:
        for seed in cell.seeds:
            try:
                changes += changes_of(tables, cell, seed)
            except UserError as error:
                refused = f"{cell.runs[seed]['place']} ({error})"
                console.print(f"left out: {refused}")
    if not changes:
        raise UserError(refused)
    console.table("before and after", COLUMNS, rows_of(changes))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be read."""
    parser = argparse.ArgumentParser(description="Gold score before and after training.")
    parser.add_argument("folders", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    return exit_code("before_after", lambda: report(given.folders, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
