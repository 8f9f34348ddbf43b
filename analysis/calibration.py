"""Whether a reward model's probabilities come true: its calibration curve.

python -m analysis.calibration FOLDER [--figure FILE]  (a folder that `rlhf-lab reward-model` names)
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
from rlhf_lab.types.errors import UserError


def figure(bins: Sequence[Bin]) -> Figure:
    """Observed against predicted share, with the diagonal and how many pairs stand behind it."""
    drawn = Figure(figsize=(4.5, 5), layout="constrained")
    above, below = drawn.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    predicted = [part.predicted for part in bins]
    observed = [part.observed for part in bins]
    ends = [wilson(round(part.observed * part.count), part.count) for part in bins]
    error = [
        [share - low for share, (low, _) in zip(observed, ends, strict=True)],
        [high - share for share, (_, high) in zip(observed, ends, strict=True)],
    ]
    above.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, label="calibrated")
    above.errorbar(predicted, observed, yerr=error, color="#0072B2", marker="o", capsize=2)
    above.set_ylabel("share in which the first was chosen")
    above.set_xlim(0, 1)
    above.set_ylim(0, 1)
    width = min(part.high - part.low for part in bins)
    below.bar(
        [part.low for part in bins],
        [part.count for part in bins],
        width=width,
        align="edge",
        color="#0072B2",
        edgecolor="white",
    )
    below.set_xlabel("predicted probability that the first is better")
    below.set_ylabel("pairs")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    pairs = sum(part.count for part in bins)
    drawn.suptitle(
        f"{pairs} held-out pairs, expected calibration error {expected_error(bins):.3f}; "
        "bars: 95% Wilson",
        fontsize="small",
    )
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if the folder has no curve."""
    parser = argparse.ArgumentParser(description="The calibration curve of a reward model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--figure", type=Path, default=Path("calibration.png"))
    given = parser.parse_args(arguments)
    try:
        drawn = figure(read_calibration(given.folder))
    except UserError as error:
        sys.stderr.write(f"calibration: {error}\n")
        return 2
    drawn.savefig(given.figure, dpi=150)
    Console(quiet=False).print(f"wrote {given.figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
