"""Results of statistics: each has its interval, level, method, number of seeds, and warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rlhf_lab.types.errors import UserError

FEW_SEEDS = 5
FEW_REPETITIONS = 1000


class Method(StrEnum):
    """How an interval is made.

    percentile: quantiles of the bootstrap (Efron 1979).
    bca: the same, corrected for bias and skewness (Efron 1987).
    t: Student's t with the jackknife's standard error (Tukey 1958), for few seeds.
    logit: the same for shares, on the scale of log odds, so that it stays within 0 to 1.
    """

    percentile = "percentile"
    bca = "bca"
    t = "t"
    logit = "logit"


WITHOUT_DRAWS = (Method.t, Method.logit)
# Of numbers of any range; log odds are of shares alone.
OF_ANY_NUMBER = (Method.percentile, Method.bca, Method.t)


@dataclass(frozen=True)
class Options:
    """Level, method, repetitions and seed of an interval. Raises UserError if one cannot be."""

    level: float = 0.95
    method: Method = Method.percentile
    repetitions: int = 10_000
    seed: int = 0

    @property
    def percent(self) -> str:
        """The level as rows print it: `95%`, `98.75%`."""
        return f"{100 * self.level:.4g}%"

    @property
    def text(self) -> str:
        """Such as `95% t`."""
        return f"{self.percent} {self.method}"

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UserError(f"level={self.level}: pass a share between 0 and 1, such as 0.95")
        if self.repetitions < FEW_REPETITIONS:
            raise UserError(
                f"repetitions={self.repetitions}: fewer than {FEW_REPETITIONS} leave the ends of "
                "an interval to chance, pass 10000"
            )
        if self.seed < 0:
            raise UserError(f"seed={self.seed}: pass 0 or more")
        if self.method not in set(Method):
            raise UserError(f"method={self.method}: pass one of {', '.join(Method)}")


@dataclass(frozen=True)
class Basis:
    """On what an interval stands: seeds of each task or condition, options, and warnings."""

    seeds: tuple[int, ...]
    tasks: int
    options: Options
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        low, high = min(self.seeds), max(self.seeds)
        seeds = str(low) if low == high else f"{low} to {high}"
        return f"{self.options.text}, {seeds} seeds, " + (
            "1 task" if self.tasks == 1 else f"{self.tasks} tasks"
        )


@dataclass(frozen=True)
class Estimate:
    """A number, the two ends of its interval, and on what it stands."""

    name: str
    point: float
    low: float
    high: float
    basis: Basis

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.basis.warnings

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def exponential(self) -> Estimate:
        """The estimate of a logarithm as that of its number."""
        point, low, high = (math.exp(value) for value in (self.point, self.low, self.high))
        return replace(self, point=point, low=low, high=high)

    def text(self, digits: int = 3) -> str:
        """Such as 0.512 [0.431, 0.604] (95% percentile, 5 seeds, 3 tasks)."""
        ends = f"[{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{self.point:.{digits}f} {ends} ({self.basis.text})"


def require_seeds(name: str, seeds: Sequence[int], needed: int = 2) -> None:
    """Raises UserError where there are too few seeds for an interval."""
    if min(seeds) < needed:
        raise UserError(
            f"{name}: {min(seeds)} seed where an interval needs at least {needed}: train more "
            "(seed=1,2,3,4,5), or take the value without an interval"
        )


def size_warnings(seeds: Sequence[int], method: Method) -> tuple[str, ...]:
    """Warnings about the number of seeds: too few, or unequal."""
    found = []
    if min(seeds) < FEW_SEEDS and method in WITHOUT_DRAWS:
        found.append(
            f"{min(seeds)} seeds, fewer than {FEW_SEEDS}: the {method} interval holds if scores "
            "are nearly normal, which so few seeds cannot show"
        )
    elif min(seeds) < FEW_SEEDS:
        found.append(
            f"{min(seeds)} seeds, fewer than {FEW_SEEDS}: {method} bootstrap intervals are too "
            "narrow (docs/statistics.md has by how much); use method=t, or train more seeds"
        )
    if min(seeds) != max(seeds):
        found.append(f"unequal numbers of seeds: {', '.join(map(str, seeds))}")
    return tuple(found)
