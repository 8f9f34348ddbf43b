"""Test whether two conditions are equal, or one is not worse, within a margin stated beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.contrasts import Contrast, difference
from rlhf_lab_analysis.statistics.decisions import (
    NO_WIDTH,
    Finding,
    Shows,
    finding_of,
    has_width,
    options_of,
)
from rlhf_lab_analysis.statistics.results import Estimate


@dataclass(frozen=True)
class Margin:
    """The largest difference that does not matter: `size`, printed as size times scale and unit."""

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


@dataclass(frozen=True)
class EquivalenceTest:
    """What was shown, in words, and the interval that shows it.

    difference: first - second, positive if the first is better, with the two-sided interval of
    which two one-sided tests are the ends; its basis has the level. above, below: p of each test by
    itself, that the difference is no more than -margin, and that it is no less than +margin.
    """

    finding: Finding
    text: str
    margin: Margin
    difference: Estimate
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


def difference_and_tails(
    contrast: Contrast, shows: Shows, higher_is_better: bool, together: int, level: float
) -> tuple[Estimate, Tails]:
    """The difference, positive if the first is better, with its tails."""
    made = difference(contrast, options_of(shows, together, level))
    tails = tails_of(contrast)
    if not higher_is_better:
        made = Estimate(made.name, -made.point, -made.high, -made.low, made.basis)
        tails = Tails(-tails.centre, tails.error, tails.freedom)
    return made, tails


def equivalence(
    contrast: Contrast,
    margin: Margin,
    level: float = 0.95,
    higher_is_better: bool = True,
    together: int = 1,
) -> EquivalenceTest:
    """Two one-sided tests (Schuirmann 1987), each at 1 - level: is the first equal to the second?

    If not, whether it is worse, or better, by more than the margin; else nothing was shown.
    together: how many comparisons are to hold at once (Bonferroni).
    """
    made, tails = difference_and_tails(contrast, Shows.equal, higher_is_better, together, level)
    finding = finding_of(made, margin.size)
    texts = {
        Finding.equal: f"equal within {margin.text}",
        Finding.worse: f"worse by more than {margin.text}",
        Finding.better: f"better by more than {margin.text}",
    }
    text = texts.get(finding, not_shown_text(made, f"not shown to be equal within {margin.text}"))
    above, below = tails.more_than(-margin.size), tails.less_than(margin.size)
    return EquivalenceTest(finding, text, margin, made, above, below)


def non_inferiority(
    contrast: Contrast,
    margin: Margin,
    level: float = 0.95,
    higher_is_better: bool = True,
    together: int = 1,
) -> EquivalenceTest:
    """One one-sided test at 1 - level: is the first not worse than the second by the margin?"""
    made, tails = difference_and_tails(contrast, Shows.not_worse, higher_is_better, together, level)
    finding = Finding.not_shown
    text = not_shown_text(made, f"not shown to be within {margin.text} of it or better")
    if has_width(made) and made.low > -margin.size:
        finding, text = Finding.not_worse, f"not worse by more than {margin.text}"
    elif has_width(made) and made.high < -margin.size:
        finding, text = Finding.worse, f"worse by more than {margin.text}"
    above, below = tails.more_than(-margin.size), tails.less_than(margin.size)
    return EquivalenceTest(finding, text, margin, made, above, below)


def not_shown_text(made: Estimate, text: str) -> str:
    return text if has_width(made) else f"cannot tell: {NO_WIDTH}"
