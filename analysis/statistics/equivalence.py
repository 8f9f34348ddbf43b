"""Test whether two conditions are equal within a margin that was stated beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    which two one-sided tests are the ends; its basis has the level.
    """

    finding: Finding
    text: str
    difference: Estimate

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.difference.warnings


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
    made = difference(contrast, options_of(Shows.equal, together, level))
    if not higher_is_better:
        made = Estimate(made.name, -made.point, -made.high, -made.low, made.basis)
    finding = finding_of(made, margin.size)
    texts = {
        Finding.equal: f"equal within {margin.text}",
        Finding.worse: f"worse by more than {margin.text}",
        Finding.better: f"better by more than {margin.text}",
        Finding.not_shown: f"not shown to be equal within {margin.text}",
    }
    text = texts[finding] if has_width(made) else f"cannot tell: {NO_WIDTH}"
    return EquivalenceTest(finding, text, made)
