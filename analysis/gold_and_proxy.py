"""What a policy gains in gold reward while it optimises a proxy: a figure and tables over seeds.

python -m analysis.gold_and_proxy RUNS... [--figure FILE] [--docs docs/tldr_nano.md]

Gold against the root of the KL to SFT, as in arXiv:2210.10760, for one proxy and for ensembles
(arXiv:2310.02743). `make over-optimisation` trains the runs.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import t

from analysis.command import exit_code
from analysis.compare import Run, check_scores, comparable, interval
from analysis.markdown import Table, split_at_markers, write_between_markers
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

# Okabe and Ito's colours, which the colour-blind can tell apart; the marker says it again.
STYLES = (("#000000", "o"), ("#0072B2", "s"), ("#D55E00", "^"), ("#009E73", "D"))
SINGLE = "single"


@dataclass(frozen=True)
class Curve:
    """A run's evaluations: KL to SFT in nats a sequence, and gains over SFT of gold and proxy."""

    kl: Sequence[float]
    gold: Sequence[float]
    proxy: Sequence[float]

    @property
    def peak(self) -> float:
        return max(self.gold)

    @property
    def end(self) -> float:
        return self.gold[-1]

    @property
    def drop(self) -> float:
        """Gold lost from the best evaluated version to the last one."""
        return self.peak - self.end

    def gold_at(self, kl: float) -> float:
        """Gold where the run first is that far from SFT, on the line between two evaluations.

        Raises ValueError if it never gets there.
        """
        for place in range(1, len(self.kl)):
            before, after = self.kl[place - 1 : place + 1]
            if before <= kl <= after:
                return float(np.interp(kl, (before, after), self.gold[place - 1 : place + 1]))
        raise ValueError(f"no evaluation reaches a KL of {kl}")


# For each condition, the curve of each seed.
Curves = Mapping[str, Mapping[int, Curve]]


def curve_of(run: Run) -> Curve:
    def gain(key: str) -> list[float]:
        return [row[key] - run.evals[0][key] for row in run.evals]

    return Curve([row["kl/sft_k1"] for row in run.evals], gain("gold/mean"), gain("proxy/mean"))


def condition_of(run: Run) -> str:
    """single, or how an ensemble combines."""
    given: dict[str, str] = dict(text.split("=", 1) for text in run.manifest["overrides"])
    if "proxies" in given:  # swept by sweeps/over_optimisation*.yaml
        return given["proxies"]
    if given.get("reward") != "ensemble":
        return SINGLE
    return given.get("reward.combine", "mean")


def besides(run: Run) -> list[str]:
    """The options that all runs of a study must share."""
    own = ("seed=", "reward=", "reward.", "proxies=", "output.", "tracker.")
    return sorted(text for text in run.manifest["overrides"] if not text.startswith(own))


def curves_of(runs: Sequence[Run]) -> Curves:
    """The curves by condition, the single proxy first. Raises UserError if runs do not belong
    together, two take the same place, or one lacks its fellows."""
    curves: dict[str, dict[int, Curve]] = {SINGLE: {}}
    for run in runs:
        if besides(run) != besides(runs[0]):
            raise UserError(
                f"{run.folder} and {runs[0].folder} differ in more than seed and reward: pass runs "
                "of one study, or train it anew in another folder"
            )
        held, seed = curves.setdefault(condition_of(run), {}), run.manifest["seed"]
        if seed in held:
            raise UserError(f"seed={seed} of {condition_of(run)} occurs twice: pass one of them")
        held[seed] = curve_of(run)
    for condition, held in curves.items():
        if missing := sorted(set(curves[SINGLE]) ^ set(held)):
            raise UserError(
                f"{condition} and {SINGLE} do not have the same seeds (seed {missing[0]}): train "
                "the missing runs with `make over-optimisation`, or leave their fellows out"
            )
    return curves


def shared_kl(curves: Curves, seed: int) -> float:
    """The KL that every condition of a seed gets to."""
    return min(max(held[seed].kl) for held in curves.values())


MEASURES: dict[str, Callable[[Curves, str, int], float]] = {
    "gold at the peak": lambda curves, name, seed: curves[name][seed].peak,
    "gold at the end": lambda curves, name, seed: curves[name][seed].end,
    "drop from the peak": lambda curves, name, seed: curves[name][seed].drop,
    "gold at equal KL": lambda curves, name, seed: curves[name][seed].gold_at(
        shared_kl(curves, seed)
    ),
    "KL at the end": lambda curves, name, seed: curves[name][seed].kl[-1],
    "own proxy at the end": lambda curves, name, seed: curves[name][seed].proxy[-1],
}


def seeds_of(curves: Curves) -> list[int]:
    return sorted(curves[SINGLE])


def level_row(curves: Curves, name: str) -> list[str]:
    """Means over seeds with their intervals."""
    seeds = seeds_of(curves)
    return [
        name,
        *(interval([of(curves, name, seed) for seed in seeds], 2) for of in MEASURES.values()),
    ]


def difference_row(curves: Curves, name: str) -> list[str]:
    """The same as differences to the single proxy of each seed."""
    return [
        name,
        *(
            interval([of(curves, name, s) - of(curves, SINGLE, s) for s in seeds_of(curves)], 2)
            for of in MEASURES.values()
        ),
    ]


def tables(curves: Curves) -> list[Table]:
    """Levels, and differences to the single proxy; the proxies' scales differ, so that their own
    difference would say nothing."""
    columns = ["reward", *MEASURES]
    others = [name for name in curves if name != SINGLE]
    return [
        Table("gains over SFT", columns, [level_row(curves, name) for name in curves]),
        Table(
            "differences to the single proxy, paired by seed",
            columns[:-1],
            [difference_row(curves, name)[:-1] for name in others],
        ),
    ]


def caption(curves: Curves) -> str:
    seeds = seeds_of(curves)
    means = (
        f"One seed ({seeds[0]}), so there are no intervals"
        if len(seeds) == 1
        else f"Means over {len(seeds)} seeds ({', '.join(map(str, seeds))}) with 95% t intervals "
        "over seeds"
    )
    return (
        f"{means}. Gold and proxy are gains over the SFT model of the seed; KL is in nats a "
        "sequence; the peak is the best evaluated version; equal KL is the largest that all "
        "rewards of a seed get to."
    )


def half_widths(rows: np.ndarray) -> np.ndarray:
    """Of the 95% t interval of each column's mean; zero of a single row."""
    count = len(rows)
    if count < 2:
        return np.zeros(rows.shape[1])
    error = rows.std(axis=0, ddof=1) / math.sqrt(count)
    return np.asarray(float(t.ppf(0.975, count - 1)) * error)


def draw(axes: Axes, held: Sequence[Curve], key: str, style: tuple[str, str], name: str) -> None:
    """Faint lines of the seeds, and their mean by version with its interval."""
    colour, marker = style
    kl = np.array([curve.kl for curve in held]).clip(min=0)
    rows = np.array([getattr(curve, key) for curve in held])
    line = "--" if key == "proxy" else "-"
    for away, gains in zip(kl, rows, strict=True):
        axes.plot(np.sqrt(away), gains, line, color=colour, alpha=0.15, linewidth=0.8)
    centre, half = rows.mean(axis=0), half_widths(rows)
    x = np.sqrt(kl.mean(axis=0))
    axes.fill_between(x, centre - half, centre + half, color=colour, alpha=0.12, linewidth=0)
    axes.plot(x, centre, line, color=colour, marker=marker, markersize=4, label=name)


def figure(curves: Curves) -> Figure:
    """Gold on the left, on the right what each condition optimises, against the root of KL."""
    drawn = Figure(figsize=(9, 4), layout="constrained")
    left, right = drawn.subplots(1, 2, sharex=True)
    for axes, key in ((left, "gold"), (right, "proxy")):
        for (name, held), style in zip(curves.items(), STYLES, strict=False):
            draw(axes, list(held.values()), key, style, name)
        axes.axhline(0, color="#999999", linewidth=0.6)
        axes.set_xlabel("square root of KL to SFT (nats a sequence)")
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("gold reward, gain over SFT")
    right.set_ylabel("own proxy reward, gain over SFT")
    left.legend(frameon=False)
    count = len(seeds_of(curves))
    about = f"mean of {count} seeds at the same update, 95% t interval over seeds; faint: each seed"
    drawn.suptitle(about if count > 1 else "one seed", fontsize="small")
    return drawn


def median_versions(curves: Curves) -> str:
    """Where the gold reward of the single proxy peaks, as a share of the run."""
    places = [
        curve.gold.index(curve.peak) / (len(curve.gold) - 1) for curve in curves[SINGLE].values()
    ]
    return f"{statistics.median(places):.0%}"


def report(folders: Sequence[Path], page: Path | None, file: Path, console: Console) -> None:
    """Print the tables, draw the figure, and write both where they belong."""
    if page:
        split_at_markers(page)
    curves = curves_of(comparable(folders, console, check_scores))
    shown = tables(curves)
    notes = [f"Gold of the single proxy peaks after {median_versions(curves)} of the updates."]
    for text in (caption(curves), *notes):
        console.print(text)
    for each in shown:
        console.table(each.title, each.columns, each.rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure(curves).savefig(file, dpi=150)
    console.print(f"wrote {file}")
    if page:
        place = os.path.relpath(file, page.parent)
        write_between_markers(
            page, f"![gold and proxy against KL]({place})\n\n{caption(curves)}", notes, shown
        )
        console.print(f"wrote {page}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if there is nothing to show."""
    parser = argparse.ArgumentParser(description="Gold against KL, over seeds.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--figure", type=Path, default=Path("over_optimisation.png"))
    parser.add_argument("--docs", type=Path, help="Markdown page whose marked tables are rewritten")
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    return exit_code(
        "gold_and_proxy", lambda: report(given.folders, given.docs, given.figure, console)
    )


if __name__ == "__main__":
    sys.exit(main())
