"""Compare runs side by side: a table in the terminal, and win-rate against cost and drift.

python -m analysis.compare RUNS...  (folders of runs, or folders that hold runs)
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

import matplotlib
from matplotlib.figure import Figure
from pydantic import Field
from scipy.stats import t
from typing_extensions import TypedDict

from analysis.command import exit_code
from rlhf_lab.runs.folder import EVALS, MANIFEST, METRICS, evals, metrics
from rlhf_lab.runs.reading import Unreadable, checked
from rlhf_lab.runs.schema import Count, Finite
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """A finished run with its rounds and evaluations."""

    name: str
    folder: Path
    manifest: Row
    rounds: Sequence[Row]
    evals: Sequence[Row]

    @property
    def wall(self) -> float:
        """Seconds of training wall-clock."""
        return float(self.rounds[-1]["seconds/wall"])

    def wall_at(self, version: int) -> float:
        """Wall-clock seconds at which a version was ready; version 0 was there at the start."""
        return float(self.rounds[version - 1]["seconds/wall"]) if version else 0.0


Judged = TypedDict(
    "Judged",
    {
        "version": Count,
        "gold/win_rate": Finite,
        "gold/win_rate_low": Finite,
        "gold/win_rate_high": Finite,
        "gold/win_rate_length_controlled": NotRequired[Finite | None],
        "kl/sft_k1": Finite,
        "eval/prompts": Count,
    },
)
Scored = TypedDict(
    "Scored",
    {
        "version": Count,
        "gold/win_rate": Finite,
        "gold/mean": Finite,
        "kl/sft_k1": Finite,
        "eval/prompts": Count,
    },
)
Ended = TypedDict(
    "Ended",
    {
        "seconds/wall": Annotated[float, Field(gt=0, allow_inf_nan=False)],
        "seconds/device": Finite,
        "seconds/generate": Finite,
        "seconds/score": Finite,
        "seconds/train": Finite,
        "seconds/sync": Finite,
        "seconds/wait": Finite,
        "seconds/generator_wait": Finite,
        "seconds/other": Finite,
    },
)


class Placed(TypedDict):
    seed: int
    mode: str
    algo: str
    task: str
    model: str


def check_scores(run: RunSummary, _: Sequence[Row], judged: Sequence[Row]) -> None:
    """Raises Unreadable unless a run's evaluations have the gold judge's scores."""
    for number, row in enumerate(judged, start=1):
        checked(row, Scored, run.folder / EVALS, f"line {number}")


def check_run(run: RunSummary, rounds: Sequence[Row], judged: Sequence[Row]) -> None:
    """Raises Unreadable unless a run has what the tables and the figure show."""
    checked(run.manifest, Placed, run.folder / MANIFEST)
    path = run.folder / EVALS
    for number, row in enumerate(judged, start=1):
        checked(row, Judged, path, f"line {number}")
        if row["version"] > len(rounds):
            what = f"version {row['version']} of a run of {len(rounds)} rounds"
            raise Unreadable(path, what, f"line {number}")
    for number, row in enumerate(rounds, start=1):
        checked(row, Ended, run.folder / METRICS, f"line {number}")


Check = Callable[[RunSummary, Sequence[Row], Sequence[Row]], None]


def load(folders: Sequence[Path], check: Check = check_run) -> tuple[list[Run], list[str]]:
    """The runs that can be compared, and a line for each one that cannot, with the reason. check:
    raises Unreadable for a run that lacks what is shown."""
    found: list[RunSummary] = [run for folder in folders for run in list_runs(folder)]
    runs, left_out = [], []
    for summary in found:
        if summary.state != "finished" or summary.problem:
            left_out.append(f"left out: {summary.folder} ({summary.problem or summary.state})")
            continue
        rounds, judged = metrics(summary.folder), evals(summary.folder)
        if not rounds or not judged:
            left_out.append(f"left out: {summary.folder} (not evaluated)")
            continue
        try:
            check(summary, rounds, judged)
        except Unreadable as error:
            left_out.append(f"left out: {summary.folder} ({error})")
            continue
        name = summary.name if summary.name != "." else summary.folder.name
        runs.append(Run(name, summary.folder, summary.manifest, rounds, judged))
    # The slowest mode is what the others are measured against: sync where it is there.
    runs.sort(key=lambda run: (run.manifest.get("mode") != "sync", run.name))
    return runs, left_out


def comparable(folders: Sequence[Path], console: Console, check: Check = check_run) -> list[Run]:
    """The runs that can be compared; says which ones cannot. Raises UserError if none can."""
    runs, left_out = load(folders, check)
    for line in left_out:
        console.print(line)
    if not runs:
        raise UserError(
            f"no finished, evaluated run in {', '.join(map(str, folders))}: `rlhf-lab runs` lists "
            "what is there"
        )
    return runs


def percent(row: Row) -> str:
    """A win-rate with its interval, in percent."""
    rate, low, high = (100 * row[f"gold/win_rate{part}"] for part in ("", "_low", "_high"))
    return f"{rate:.1f} [{low:.1f}, {high:.1f}]"


def length_controlled(row: Row) -> str:
    """The win-rate at equal length in percent, where the evaluation has it."""
    rate = row.get("gold/win_rate_length_controlled")
    return "" if rate is None else f"{100 * rate:.1f}"


def table_row(run: Run, baseline: Run) -> list[str]:
    """One run in numbers; speed-up is the baseline's wall-clock over this one's."""
    first, last, end = run.evals[0], run.evals[-1], run.rounds[-1]
    return [
        run.name,
        str(run.manifest["seed"]),
        percent(first),
        percent(last),
        length_controlled(last),
        f"{last['kl/sft_k1']:.2f}",
        f"{run.wall:.1f}",
        f"{baseline.wall / run.wall:.2f}",
        f"{end['seconds/device']:.0f}",
        f"{100 * end['seconds/wait'] / run.wall:.0f}",
        f"{end.get('lag/updates_min', 0)}..{end.get('lag/updates_max', 0)}",
    ]


COLUMNS = [
    "run",
    "seed",
    "SFT win-rate % [95%]",
    "win-rate % [95%]",
    "at equal length %",
    "KL nats",
    "wall s",
    "speed-up",
    "core s",
    "waiting %",
    "lag updates",
]


def phases_row(run: Run) -> list[str]:
    """Milliseconds of an average round by phase, and the share of wall-clock outside of them."""
    end, count = run.rounds[-1], len(run.rounds)
    phases = [1000 * end[f"seconds/{name}"] / count for name in PHASE_NAMES]
    return [
        run.name,
        *(f"{milliseconds:.0f}" for milliseconds in phases),
        f"{100 * end['seconds/other'] / run.wall:.1f}",
    ]


PHASE_NAMES = ("generate", "score", "train", "sync", "wait", "generator_wait")
PHASES = ["run", *(f"{name.replace('_', ' ')} ms" for name in PHASE_NAMES), "other %"]


def over_seeds(runs: Sequence[Run]) -> list[list[str]]:
    """Per mode with several seeds: mean win-rates and speed-up with 95% t intervals over seeds.

    Speed-ups are paired: each run against the sync run of its own seed.
    """
    rows = []
    sync = {run.manifest["seed"]: run for run in runs if run.manifest["mode"] == "sync"}
    for mode in dict.fromkeys(run.manifest["mode"] for run in runs):
        chosen = [run for run in runs if run.manifest["mode"] == mode]
        if len({run.manifest["seed"] for run in chosen}) < len(chosen) or len(chosen) < 2:
            continue
        before = [100 * run.evals[0]["gold/win_rate"] for run in chosen]
        after = [100 * run.evals[-1]["gold/win_rate"] for run in chosen]
        kl = [run.evals[-1]["kl/sft_k1"] for run in chosen]
        faster = [
            sync[run.manifest["seed"]].wall / run.wall
            for run in chosen
            if run.manifest["seed"] in sync
        ]
        texts = [interval(before, 1), interval(after, 1), interval(kl, 2), interval(faster, 2)]
        rows.append([mode, str(len(chosen)), *texts])
    return rows


SEED_COLUMNS = ["mode", "seeds", "SFT win-rate %", "win-rate %", "KL nats", "speed-up"]


def interval(values: Sequence[float], digits: int) -> str:
    """Mean and 95% t interval; the mean alone of one value or with NaN, nothing of none."""
    if not values:
        return ""
    centre = statistics.fmean(values)
    if len(values) == 1 or not math.isfinite(centre):
        return f"{centre:.{digits}f}"
    error = statistics.stdev(values) / math.sqrt(len(values))
    half = float(t.ppf(0.975, len(values) - 1)) * error
    return f"{centre:.{digits}f} [{centre - half:.{digits}f}, {centre + half:.{digits}f}]"


def figure(runs: Sequence[Run]) -> Figure:
    """Gold win-rate against wall-clock and against KL; bars are 95% Wilson intervals."""
    drawn = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = drawn.subplots(1, 2, sharey=True)
    for run in runs:
        rate = [100 * row["gold/win_rate"] for row in run.evals]
        error = [
            [100 * (row["gold/win_rate"] - row["gold/win_rate_low"]) for row in run.evals],
            [100 * (row["gold/win_rate_high"] - row["gold/win_rate"]) for row in run.evals],
        ]
        wall = [run.wall_at(row["version"]) for row in run.evals]
        kl = [row["kl/sft_k1"] for row in run.evals]
        for axes, x in ((left, wall), (right, kl)):
            axes.errorbar(x, rate, yerr=error, marker="o", capsize=2, label=run.name)
    left.set_xlabel("training wall-clock (s)")
    right.set_xlabel("KL to SFT (nats a sequence)")
    left.set_ylabel("gold win-rate against references (%)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    seeds = sorted({run.manifest["seed"] for run in runs})
    drawn.suptitle(
        f"{len(runs)} runs, seed {', '.join(map(str, seeds))}; bars: 95% Wilson interval over "
        f"{runs[0].evals[-1]['eval/prompts']} prompts, not over seeds",
        fontsize="small",
    )
    return drawn


def save(drawn: Figure, folder: Path) -> list[Path]:
    """Write the figure as PNG and PDF with editable text; returns the files."""
    matplotlib.rcParams["pdf.fonttype"] = 42
    paths = [folder / f"compare.{kind}" for kind in ("png", "pdf")]
    for path in paths:
        drawn.savefig(path, dpi=150)
    return paths


def report(folders: Sequence[Path], out: Path, console: Console) -> None:
    """Print the tables, write the figure, name the files."""
    runs = comparable(folders, console)
    first = runs[0].manifest
    console.print(
        f"\n{first['algo']} on {first['task']} with {first['model']}: speed-up against "
        f"{runs[0].name}. Win-rate: share of prompts whose sample beats the reference for the gold "
        "judge. Lag: how many updates older than the policy the trained samples were at the end."
    )
    console.table("comparison", COLUMNS, [table_row(run, runs[0]) for run in runs])
    console.table("an average round", PHASES, [phases_row(run) for run in runs])
    if rows := over_seeds(runs):
        console.table("mean over seeds, with 95% t interval", SEED_COLUMNS, rows)
    if len({run.manifest["seed"] for run in runs}) < 3:
        console.print("fewer than 3 seeds: the intervals are over prompts, not over training runs")
    for path in save(figure(runs), out):
        console.print(f"wrote {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if nothing can be compared."""
    parser = argparse.ArgumentParser(description="Compare runs: tables and a figure.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="folder of the figure (default: the first one)")
    given = parser.parse_args(arguments)
    out = given.out or given.folders[0]
    return exit_code("compare", lambda: report(given.folders, out, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
