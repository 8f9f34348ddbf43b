"""Tabulate gold reward against KL while a policy optimises one proxy or an ensemble of them.

python -m benchmarks.pages.over_optimisation RUNS... [--figure FILE]
      [--docs docs/tldr_nano.md]

As in arXiv:2210.10760 for one proxy and arXiv:2310.02743 for ensembles.
`rlhf-lab sweep over_optimisation_nano` trains the runs; the figure is one of `rlhf-lab plot`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.pages.seeds import caption_of, mean_text, select_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.families import rest_of
from rlhf_lab_analysis.markdown import Table, publish, split_at_markers
from rlhf_lab_analysis.plots.figure import draw
from rlhf_lab_analysis.plots.panels import Request
from rlhf_lab_analysis.plots.style import Style, write

SINGLE = "single"
CAPTION = (
    "Gold and proxy are gains over the SFT model of the seed; KL is in nats a sequence; the peak "
    "is the best evaluated version; equal KL is the largest that all rewards of a seed get to."
)
REQUEST = Request(y=["gold", "proxy", "gold"], x=["kl", "kl", "updates"])


@dataclass(frozen=True)
class Curve:
    """A run's evaluations: KL to SFT in nats a sequence, and gains over SFT of gold and proxy."""

    kl: Sequence[float]
    gold: Sequence[float]
    proxy: Sequence[float]

    def gold_at(self, kl: float) -> float:
        """Gold where the run first is that far from SFT, on the line between two evaluations.

        Raises ValueError if it never gets there.
        """
        for i in range(1, len(self.kl)):
            if self.kl[i - 1] <= kl <= self.kl[i]:
                return float(np.interp(kl, self.kl[i - 1 : i + 1], self.gold[i - 1 : i + 1]))
        raise ValueError(f"no evaluation reaches a KL of {kl}")


# For each reward, the curve of each seed.
Curves = Mapping[str, Mapping[int, Curve]]


def curves_of(cells: Sequence[Cell]) -> Curves:
    """The curves by reward, the single proxy first. Raises UserError if runs do not belong
    together, two have the same reward and seed, or a seed is not trained with every reward."""
    curves: dict[str, dict[int, Curve]] = {SINGLE: {}}
    for cell in cells:
        if rest_of(cell, ["reward"]) != rest_of(cells[0], ["reward"]):
            raise UserError(
                f"{cell.condition} and {cells[0].condition} differ in more than seed and reward: "
                "pass runs of one study, or train it anew in another folder"
            )
        # An ensemble is called by how it combines its members.
        is_ensemble = cell.parts["reward"] == "ensemble"
        name = str(cell.config("reward.combine")) if is_ensemble else SINGLE
        held = curves.setdefault(name, {})
        if twice := sorted(set(held) & set(cell.seeds)):
            raise UserError(f"seed={twice[0]} of {name} occurs twice: pass one of them")
        gold, proxy = (cell.paths("kl/sft_k1", score) for score in ("gold/mean", "proxy/mean"))
        for seed, (kl, rewards) in gold.items():
            held[seed] = Curve(kl, gains(rewards), gains(proxy[seed][1]))
    for name, held in curves.items():
        if missing := sorted(set(curves[SINGLE]) ^ set(held)):
            raise UserError(
                f"{name} and {SINGLE} do not have the same seeds (seed {missing[0]}): train "
                "the missing runs with `rlhf-lab sweep over_optimisation_nano`, or leave the "
                "others of the seed out"
            )
    return curves


def gains(values: Sequence[float]) -> list[float]:
    return [value - values[0] for value in values]


# A number of one run, given the largest KL that its seed reaches with every reward. The drop is
# from the best evaluated version to the last one.
MEASURES: dict[str, Callable[[Curve, float], float]] = {
    "gold at the peak": lambda curve, _: max(curve.gold),
    "gold at the end": lambda curve, _: curve.gold[-1],
    "drop from the peak": lambda curve, _: max(curve.gold) - curve.gold[-1],
    "gold at equal KL": lambda curve, shared: curve.gold_at(shared),
    "KL at the end": lambda curve, _: curve.kl[-1],
    "own proxy at the end": lambda curve, _: curve.proxy[-1],
}


def tables_of(curves: Curves) -> list[Table]:
    """Levels, and differences to the single proxy. Proxies have scales of their own, so their
    difference is left out."""
    base = curves[SINGLE]
    shared = {seed: min(max(held[seed].kl) for held in curves.values()) for seed in base}
    levels, differences = [], []
    for name, held in curves.items():
        own, apart = [name], [name]
        for measure in MEASURES.values():
            values = {seed: measure(curve, shared[seed]) for seed, curve in held.items()}
            less = {
                seed: value - measure(base[seed], shared[seed]) for seed, value in values.items()
            }
            own.append(mean_text(values, 2))
            apart.append(mean_text(less, 2))
        levels.append(own)
        differences.append(apart[:-1])
    columns = ["reward", *MEASURES]
    title = "differences to the single proxy, paired by seed"
    return [
        Table("gains over SFT", columns, levels),
        Table(title, columns[:-1], [row for row in differences if row[0] != SINGLE]),
    ]


def report(folders: Sequence[Path], page: Path | None, file: Path, console: Console) -> None:
    """Print the tables, draw the figure, and write both into the page if there is one."""
    if page:
        split_at_markers(page)
    selection = select_runs(folders, console)
    curves = curves_of(selection.cells)
    file.parent.mkdir(parents=True, exist_ok=True)
    drawn = draw(selection, REQUEST, Style(), None)
    write(drawn.figure, file.with_suffix(""), [file.suffix[1:]])
    link = f"![gold and proxy against KL]({os.path.relpath(file, page.parent if page else '.')})"
    own = [curve.gold for curve in curves[SINGLE].values()]
    share = median(gold.index(max(gold)) / (len(gold) - 1) for gold in own)
    note = f"Gold of the single proxy peaks after {share:.0%} of the updates."
    caption = f"{link}\n\n{caption_of(curves[SINGLE])}. {CAPTION}"
    publish(caption, [note], tables_of(curves), page, console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if there is nothing to show."""
    parser = argparse.ArgumentParser(description="Gold against KL, over seeds.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--figure", type=Path, default=Path("over_optimisation.png"))
    parser.add_argument("--docs", type=Path, help="Markdown page whose marked tables are rewritten")
    given = parser.parse_args(arguments)
    console = Console(quiet=False)
    return exit_code(
        "over_optimisation", lambda: report(given.folders, given.docs, given.figure, console)
    )


if __name__ == "__main__":
    sys.exit(main())
