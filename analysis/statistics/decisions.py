"""Decide claims by intervals: the one rule of level, interval and verdict for all outputs.

A claim that is tested under several algorithms or models is one family: its intervals hold together
(Bonferroni). A claim of several parts is another matter, see `all_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.results import Estimate, Method, Options

LEVEL = 0.95
# Ends that differ by less than this share are one number: sums of floats are not exact.
ROUNDING = 1e-12
NO_WIDTH = "no seed differs from another, and an interval without width decides nothing"


class Shows(StrEnum):
    """The statement that a claim makes about a difference."""

    below = "below"
    above = "above"
    equal = "equal"
    not_worse = "not worse"


class Verdict(StrEnum):
    """The decision on a claim. negligible: the difference has the claimed sign, and is shown to be
    within the margin."""

    holds = "holds"
    negligible = "holds, negligible"
    does_not_hold = "does not hold"
    cannot_tell = "cannot tell"


class Finding(StrEnum):
    """The result of comparing a difference with a margin."""

    equal = "equal"
    worse = "worse"
    better = "better"
    not_shown = "not shown"


def options_of(shows: Shows, together: int = 1, level: float = LEVEL) -> Options:
    """Options of the t interval for one of `together` comparisons that must hold at once. For
    `above` and `below` it is two-sided at `level`; for `equal` and `not_worse` its ends are two
    one-sided tests, each at `level` (Schuirmann 1987).

    Raises UserError for a level that one-sided tests cannot have.
    """
    if level <= 0.5:
        raise UserError(f"level={level}: one-sided tests need more than 0.5, such as 0.95")
    sides = 1 if shows in (Shows.equal, Shows.not_worse) else 2
    return Options(level=1 - (2 / sides) * (1 - level) / together, method=Method.t)


def has_width(estimate: Estimate) -> bool:
    """Whether seeds differ at all; if not, the interval has no width and decides nothing."""
    return estimate.high - estimate.low > ROUNDING * max(1.0, abs(estimate.point))


def decide(estimate: Estimate, shows: Shows, margin: float) -> Verdict:
    """The verdict of an interval. If the difference is shown to be within the margin, a claim of a
    direction does not hold, or holds and is negligible."""
    if not has_width(estimate):
        return Verdict.cannot_tell
    low, high = estimate.low, estimate.high
    if shows is Shows.above:
        low, high = -high, -low
    if shows in (Shows.below, Shows.above):
        return decide_below(low, high, margin)
    holds = low > -margin and (high < margin or shows is Shows.not_worse)
    fails = high < -margin or (low > margin and shows is Shows.equal)
    if holds:
        return Verdict.holds
    return Verdict.does_not_hold if fails else Verdict.cannot_tell


def decide_below(low: float, high: float, margin: float) -> Verdict:
    is_within = -margin < low and high < margin
    if high < 0:
        return Verdict.negligible if is_within else Verdict.holds
    return Verdict.does_not_hold if low > 0 or is_within else Verdict.cannot_tell


def finding_of(estimate: Estimate, margin: float) -> Finding:
    """Equal within the margin, or beyond it on one side, or neither."""
    if not has_width(estimate):
        return Finding.not_shown
    if -margin < estimate.low and estimate.high < margin:
        return Finding.equal
    if estimate.high < -margin:
        return Finding.worse
    return Finding.better if estimate.low > margin else Finding.not_shown


def all_of(each: Sequence[Verdict], corrected: Sequence[Verdict]) -> Verdict:
    """The verdict of a claim of several parts. It holds if each part holds at its own level, which
    needs no correction (intersection-union, Berger 1982). It fails if any part fails at the level
    that is corrected for the number of parts."""
    if Verdict.does_not_hold in corrected:
        return Verdict.does_not_hold
    if {*each} <= {Verdict.holds, Verdict.negligible}:
        return Verdict.negligible if Verdict.negligible in each else Verdict.holds
    return Verdict.cannot_tell
