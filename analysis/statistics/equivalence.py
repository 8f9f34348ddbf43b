"""Whether two conditions are equal, or one not worse, within a margin that is stated before."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from analysis.statistics.contrasts import Contrast, difference
from analysis.statistics.results import Estimate, Method, Options
from rlhf_lab.types import UserError


@dataclass(frozen=True)
class Margin:
    """The largest difference that does not matter, and how to say it: size times scale, unit."""

    size: float
    unit: str = ""
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.size < np.inf:
            raise UserError(f"margin={self.size}: pass the largest difference that does not matter")

    @property
    def text(self) -> str:
        return f"{self.scale * self.size:g} {self.unit}".strip()


def points(size: float) -> Margin:
    """A margin in percentage points, for shares from 0 to 1."""
    return Margin(size / 100, "points", 100)


class Finding(StrEnum):
    """What a comparison against a margin shows."""

    equal = "equal"
    not_worse = "not worse"
    worse = "worse"
    better = "better"
    not_shown = "not shown"


@dataclass(frozen=True)
class Verdict:
    """What was shown, in words, with the p-values of the one-sided tests.

    above: p that the difference (first - second, positive if the first is better) is no more than
    -margin; below: p that it is no less than +margin. interval is two-sided at 1 - 2 alpha, the one
    that lies within the margin exactly if both are rejected.
    """

    finding: Finding
    text: str
    margin: Margin
    difference: Estimate
    interval: tuple[float, float]
    above: float
    below: float

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.difference.warnings


@dataclass(frozen=True)
class Tails:
    """One-sided tests of a difference by t: estimate, its standard error, degrees of freedom."""

    centre: float
    error: float
    freedom: float

    def more_than(self, bound: float) -> float:
        """p that the true difference is no more than the bound."""
        return self._p(self.centre - bound)

    def less_than(self, bound: float) -> float:
        """p that the true difference is no less than the bound."""
        return self._p(bound - self.centre)

    def _p(self, distance: float) -> float:
        if self.error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(stats.t.sf(distance / self.error, self.freedom))


def tails_of(contrast: Contrast) -> Tails:
    """Student's in pairs, Welch's apart."""
    parts = [float(part.var(ddof=1)) / len(part) for part in contrast.parts]
    total = sum(parts)
    spread = sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, contrast.parts, strict=True)
    )
    freedom = total**2 / spread if spread > 0 else 1.0
    return Tails(contrast.difference, float(np.sqrt(total)), freedom)


def compared(
    contrast: Contrast, level: float, higher_is_better: bool
) -> tuple[Estimate, Tails, float]:
    """The difference, positive if the first is better, with its tails, and alpha."""
    made = difference(contrast, Options(level=level, method=Method.t))
    tails = tails_of(contrast)
    if not higher_is_better:
        made = Estimate(made.name, -made.point, -made.high, -made.low, made.basis)
        tails = Tails(-tails.centre, tails.error, tails.freedom)
    return made, tails, 1 - level


def equivalence(
    contrast: Contrast, margin: Margin, level: float = 0.95, higher_is_better: bool = True
) -> Verdict:
    """Two one-sided tests (Schuirmann 1987), each at 1 - level: is the first equal to the second?

    If not, whether it is worse, or better, by more than the margin; else nothing was shown.
    """
    made, tails, alpha = compared(contrast, level, higher_is_better)
    above, below = tails.more_than(-margin.size), tails.less_than(margin.size)
    finding, text = Finding.not_shown, f"not shown to be equal within {margin.text}"
    if max(above, below) <= alpha:
        finding, text = Finding.equal, f"equal within {margin.text}"
    elif tails.less_than(-margin.size) <= alpha:
        finding, text = Finding.worse, f"worse by more than {margin.text}"
    elif tails.more_than(margin.size) <= alpha:
        finding, text = Finding.better, f"better by more than {margin.text}"
    return Verdict(finding, text, margin, made, span(tails, alpha), above, below)


def non_inferiority(
    contrast: Contrast, margin: Margin, level: float = 0.95, higher_is_better: bool = True
) -> Verdict:
    """One one-sided test at 1 - level: is the first not worse than the second by the margin?"""
    made, tails, alpha = compared(contrast, level, higher_is_better)
    above, below = tails.more_than(-margin.size), tails.less_than(margin.size)
    finding, text = Finding.not_shown, f"not shown to be within {margin.text} of it or better"
    if above <= alpha:
        finding, text = Finding.not_worse, f"not worse by more than {margin.text}"
    elif tails.less_than(-margin.size) <= alpha:
        finding, text = Finding.worse, f"worse by more than {margin.text}"
    return Verdict(finding, text, margin, made, span(tails, alpha), above, below)


def span(tails: Tails, alpha: float) -> tuple[float, float]:
    """The interval at 1 - 2 alpha, of which the tests are the ends."""
    half = float(stats.t.ppf(1 - alpha, tails.freedom)) * tails.error
    return tails.centre - half, tails.centre + half
