"""Draw a reward model's calibration curve: predicted probabilities against observed shares.

python -m benchmarks.pages.calibration FOLDER [--figure FILE]
(FOLDER: what `rlhf-lab reward-model` names)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from rlhf_lab.evaluation.measures.intervals import wilson
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.stages.calibration import Bin, expected_error, read_calibration
from rlhf_lab_analysis.command import exit_code

COLOUR = "#0072B2"


def figure_of(bins: Sequence[Bin]) -> Figure:
    """Observed against predicted share with the diagonal, above the number of pairs in each bin."""
    figure = Figure(figsize=(4.5, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    predicted, observed = [one.predicted for one in bins], [one.observed for one in bins]
    ends = [wilson(round(one.observed * one.count), one.count) for one in bins]
    error = [
        [share - low for share, (low, _) in zip(observed, ends, strict=True)],
        [high - share for share, (_, high) in zip(observed, ends, strict=True)],
    ]
    above.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, label="calibrated")
    above.errorbar(predicted, observed, yerr=error, color=COLOUR, marker="o", capsize=2)
    above.set(ylabel="share in which the first was chosen", xlim=(0, 1), ylim=(0, 1))
    width = min(one.high - one.low for one in bins)
    lows, counts = [one.low for one in bins], [one.count for one in bins]
    below.bar(lows, counts, width=width, align="edge", color=COLOUR, edgecolor="white")
    below.set(xlabel="predicted probability that the first is better", ylabel="pairs")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{sum(counts)} held-out pairs, expected calibration error {expected_error(bins):.3f}; "
        "bars: 95% Wilson",
        fontsize="small",
    )
    return figure


def report(folder: Path, file: Path, console: Console) -> None:
    """Draw the curve of a reward model's folder."""
    figure_of(read_calibration(folder)).savefig(file, dpi=150)
    console.print(f"wrote {file}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if the folder has no curve."""
    parser = argparse.ArgumentParser(description="The calibration curve of a reward model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--figure", type=Path, default=Path("calibration.png"))
    given = parser.parse_args(arguments)
    return exit_code(
        "calibration", lambda: report(given.folder, given.figure, Console(quiet=False))
    )


if __name__ == "__main__":
    sys.exit(main())
