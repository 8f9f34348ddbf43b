"""What training changed: gold score of the first and the last saved version, by split and seed.

python -m analysis.before_after RUNS...  (folders of runs, or folders that hold runs)

Reads every evals*.jsonl of a run, so `rlhf-lab evaluate RUN eval.split=test eval.label=test` adds a
row a run.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import TypedDict

from analysis.command import exit_code
from analysis.compare import Row, Run, comparable, interval
from rlhf_lab.runs.folder import MANIFEST, METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import checked
from rlhf_lab.runs.schema import Count, Finite
from rlhf_lab.runs.summaries import RunSummary
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

COLUMNS = ["evaluated", "seed", "prompts", "before", "after", "change", "KL nats"]
TRAINING = "training prompts"


Scored = TypedDict(
    "Scored",
    {"version": Count, "gold/mean": Finite, "eval/prompts": Count, "kl/sft_k1": Finite},
)
Trained = TypedDict(
    "Trained",
    {
        "reward/mean_generated": Finite,
        "total/prompts": Count,
        "kl/sampled_reference_k1": Finite,
    },
)


@dataclass(frozen=True)
class Change:
    """One line: score before and after. prompts: how many a score is the mean of."""

    what: str
    seed: int
    prompts: int
    before: float
    after: float
    kl: float

    @property
    def size(self) -> float:
        return self.after - self.before


class Seeded(TypedDict):
    seed: int


def check_rounds(run: RunSummary, rounds: Sequence[Row], _: Sequence[Row]) -> None:
    """Raises Unreadable unless a run has its seed, and its rounds what a change is made of."""
    checked(run.manifest, Seeded, run.folder / MANIFEST)
    for number, row in enumerate(rounds, start=1):
        checked(row, Trained, run.folder / METRICS, f"line {number}")


def changes(run: Run) -> list[Change]:
    """The changes of a run: on each set of prompts that it was evaluated on, and in training, where
    the first and the last quarter of the rounds stand for before and after."""
    seed = int(run.manifest["seed"])
    found = []
    for path in sorted(run.folder.glob("evals*.jsonl")):
        rows = read_rows(path)
        for number, row in enumerate(rows, start=1):
            checked(row, Scored, path, f"line {number}")
        if not rows or rows[0]["version"] != 0:
            raise UserError(
                f"{path} does not begin with version 0: evaluate the run again with "
                "eval.snapshots=1 or more"
            )
        before, after = (float(row["gold/mean"]) for row in (rows[0], rows[-1]))
        end = rows[-1]
        label = path.stem.removeprefix("evals").removeprefix("-")
        what = label or str(end.get("eval/split", path.name))
        found.append(Change(what, seed, end["eval/prompts"], before, after, end["kl/sft_k1"]))
    quarter = max(1, len(run.rounds) // 4)
    ends = (run.rounds[:quarter], run.rounds[-quarter:])
    before, after = (sum(map(generated, part)) / quarter for part in ends)
    prompts = int(run.rounds[quarter - 1]["total/prompts"])
    drift = float(run.rounds[-1]["kl/sampled_reference_k1"])
    return [*found, Change(TRAINING, seed, prompts, before, after, drift)]


def generated(row: Row) -> float:
    """The mean reward of everything that was generated, kept or not."""
    return float(row["reward/mean_generated"])


def table(found: Sequence[Change]) -> list[list[str]]:
    """A row a change, and their mean over the seeds behind those of a kind."""
    kinds: defaultdict[str, list[Change]] = defaultdict(list)
    for change in found:
        kinds[change.what].append(change)
    rows = []
    for what, of_kind in kinds.items():
        for change in sorted(of_kind, key=lambda change: change.seed):
            numbers = (change.before, change.after)
            texts = [f"{number:.3f}" for number in numbers]
            sizes = [f"{change.size:+.3f}", f"{change.kl:.2f}"]
            rows.append([what, str(change.seed), str(change.prompts), *texts, *sizes])
        if len(of_kind) > 1:
            columns = [
                interval([getattr(change, name) for change in of_kind], 3)
                for name in ("before", "after", "size")
            ]
            rows.append([what, "mean [95% t]", "", *columns, ""])
    return rows


def report(folders: Sequence[Path], console: Console) -> None:
    """Print how the runs in these folders changed."""
    found: list[Change] = []
    for run in comparable(folders, console, check_rounds):
        try:
            found += changes(run)
        except UserError as error:
            refused = error
            console.print(f"left out: {run.folder} ({error})")
    if not found:
        raise refused
    console.table("before and after", COLUMNS, table(found))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be read."""
    parser = argparse.ArgumentParser(description="Gold score before and after training.")
    parser.add_argument("folders", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    return exit_code("before_after", lambda: report(given.folders, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
