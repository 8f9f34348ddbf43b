"""Which change removes a collapse: forks against the run that collapsed, at the same rounds.

A fork and its parent share every bit before the fork's round, and all that is random after it is
keyed by the same seed: their difference at the end is that of the change. It is paired by the round
of the fork, which is what is left to vary; rounds that lie close together are not independent, so
the interval is of other rounds of this run, and not of other runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.folder import metrics
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.intervals import mean_ends

LEVEL = 0.95
# A change removes a collapse if it gives back more than this share of the fall.
REMOVED = 0.5


@dataclass(frozen=True)
class Collapse:
    """The fall of a metric: its means over some rounds before the first fork and at the end."""

    run: Path
    metric: str
    last: int
    before: float
    after: float

    @property
    def fall(self) -> float:
        return self.before - self.after


@dataclass(frozen=True)
class Effect:
    """Differences fork less parent at the end, in the metric's unit, one for each round."""

    differences: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.differences)

    @property
    def interval(self) -> tuple[float, float]:
        """By Student's t; without bounds from a single pair."""
        return mean_ends(self.differences, LEVEL)

    def verdict(self, fall: float) -> str:
        """Whether the change removes a fall of this size: yes, no, or undecided."""
        low, high = self.interval
        if low > REMOVED * fall:
            return "removes it"
        return "does not" if high < REMOVED * fall else "undecided"


def values_of(run: Path, metric: str) -> list[float]:
    """A metric by round. Raises UserError where the run does not have it in every round."""
    found = [row.get(metric) for row in metrics(run)]
    values = [float(value) for value in found if isinstance(value, int | float)]
    if not values or len(values) < len(found):
        raise UserError(f"--metric={metric} is not in every round of {run}: choose another")
    return values


def collapse_of(run: Path, round_: int, metric: str, last: int) -> Collapse:
    """The fall of a metric from the rounds before `round_` to the end of a run."""
    values = values_of(run, metric)
    if not 0 < last <= round_ < len(values):
        raise UserError(
            f"round={round_} with --last={last}: {run} has {len(values)} rounds, and a mean takes "
            f"{last} before the first fork; choose a round from {last} to {len(values) - 1}"
        )
    before = statistics.fmean(values[round_ - last : round_])
    found = Collapse(run, metric, last, before, statistics.fmean(values[-last:]))
    if found.fall <= 0:
        raise UserError(
            f"{metric} of {run} does not fall: {before:.4g} before round {round_}, "
            f"{found.after:.4g} at the end; choose another round or --metric"
        )
    return found


def effect_of(collapse: Collapse, forks: Sequence[Path]) -> Effect:
    """The differences of forks to the run that collapsed, over its last rounds."""
    ends = [statistics.fmean(values_of(fork, collapse.metric)[-collapse.last :]) for fork in forks]
    return Effect(tuple(end - collapse.after for end in ends))


def report(
    collapse: Collapse,
    forks: Mapping[str, Sequence[Path]],
    factors: Mapping[str, Sequence[str]],
    refused: Mapping[str, str],
    console: Console,
) -> None:
    """Print what each change gives back of the fall, the largest first."""
    effects = {factor: effect_of(collapse, folders) for factor, folders in forks.items()}
    ordered = sorted(effects, key=lambda factor: -effects[factor].mean)
    rows = []
    for factor in ordered:
        effect, changes = effects[factor], ", ".join(factors[factor])
        low, high = effect.interval
        bounds = f"[{low:+.4g}, {high:+.4g}]" if math.isfinite(low) else ""
        share = f"{effect.mean / collapse.fall:.0%}"
        verdict = effect.verdict(collapse.fall)
        shown = changes if "without_rows" not in changes else "not trained on once"
        pairs = str(len(effect.differences))
        rows.append([factor, shown, pairs, f"{effect.mean:+.4g}", bounds, share, verdict])
    title = (
        f"{collapse.metric} of {collapse.run.name} fell by {collapse.fall:.4g}, from "
        f"{collapse.before:.4g} to {collapse.after:.4g}; forks less it, at the end"
    )
    columns = ["factor", "change", "forks", "difference", f"{LEVEL:.0%}", "of the fall", "verdict"]
    console.table(title, columns, rows)
    for factor, reason in refused.items():
        console.print(f"{factor} was not forked: {reason}")
