"""Does a signal warn of a collapse: AUROC at a lead time, and lead at a rate of false alarms.

A signal is read as its mean over the last `WINDOW` rounds. AUROC compares a run that collapses with
a stable one at the same round, so that what every run does at its start counts for nothing: was the
mean higher in the run that would collapse `lead` rounds later? An alarm is raised when the mean
exceeds a threshold for the first time. The definitions are of this package; no paper is followed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.arrays import Floats

WINDOW = 4
REPETITIONS = 2000
LEVEL = 0.95
FALSE_ALARMS = 0.1
HUGE = 1e200


@dataclass(frozen=True)
class Course:
    """A signal in each round of a run, (R,), where larger is more alarming. stratum: it is compared
    with runs of the same one. collapse: the index of the round at which it collapses, None if it
    does not."""

    stratum: Hashable
    signal_R: Floats
    collapse: int | None

    @cached_property
    def mean_R(self) -> Floats:
        """The mean over the last rounds, at each round."""
        return recent_mean(self.signal_R)


@dataclass(frozen=True)
class Concordance:
    """The share of pairs of a collapsed and a stable run in which the collapsed one had the higher
    signal, with its interval over runs; not a number where there are no pairs. collapsed, stable:
    runs that are in a pair."""

    auroc: float = math.nan
    low: float = math.nan
    high: float = math.nan
    collapsed: int = 0
    stable: int = 0


@dataclass(frozen=True)
class Alarms:
    """Of how many collapsed runs a signal warned, and how many rounds before in their median, if
    no more than `FALSE_ALARMS` of the stable runs of a stratum may exceed its threshold."""

    warned: int
    collapsed: int
    median_lead: float
    false_alarms: int
    stable: int


def recent_mean(signal_R: Floats, window: int = WINDOW) -> Floats:
    """The mean over the last `window` rounds at each round, (R,); minus infinity before the first
    whole window. What is not a number is left out; infinity alarms like a huge number."""
    if len(signal_R) < window:
        return np.full(len(signal_R), -np.inf)
    known = ~np.isnan(signal_R)
    filled = np.clip(np.where(known, signal_R, 0.0), -HUGE, HUGE)
    sums, counts = (
        np.convolve(one, np.ones(window))[window - 1 : len(signal_R)] for one in (filled, known)
    )
    mean = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    return np.asarray(np.concatenate([np.full(window - 1, -np.inf), mean]))


def concordance(courses: Sequence[Course], lead: int, seed: int = 0) -> Concordance:
    """The AUROC `lead` rounds before collapse, with a bootstrap interval over runs.

    Runs that collapse before there is a whole window by then are left out. Raises UserError for a
    lead below 1: at its collapse a run needs no warning.
    """
    if lead < 1:
        raise UserError(f"lead={lead}: pass 1 round or more before the collapse")
    wins_FS = wins_of(courses, lead)
    known_FS = ~np.isnan(wins_FS)
    wins_FS = wins_FS[known_FS.any(axis=1)][:, known_FS.any(axis=0)]
    if not wins_FS.size:
        return Concordance()
    rng = np.random.default_rng([seed, lead, *wins_FS.shape])
    drawn = [
        rng.multinomial(size, np.full(size, 1 / size), REPETITIONS).astype(float)
        for size in wins_FS.shape
    ]
    auroc = share(wins_FS, *(np.ones((1, size)) for size in wins_FS.shape))[0]
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    low, high = np.nanquantile(share(wins_FS, *drawn), tails)
    return Concordance(float(auroc), float(low), float(high), *wins_FS.shape)


def wins_of(courses: Sequence[Course], lead: int) -> Floats:
    """For each collapsed and each stable run, (F, S): 1 if the collapsed one's signal was the
    higher one, 0.5 for a tie, NaN for other strata. A stable run that ended before keeps its last
    mean."""
    places = [(one, (one.collapse or 0) - lead) for one in courses if one.collapse is not None]
    fallen = [(one, at) for one, at in places if at >= WINDOW - 1]
    stable = [one for one in courses if one.collapse is None]
    wins_FS = np.full((len(fallen), len(stable)), np.nan)
    for row, (one, at) in enumerate(fallen):
        for column, other in enumerate(stable):
            if one.stratum == other.stratum:
                own, beside = one.mean_R[at], other.mean_R[min(at, len(other.mean_R) - 1)]
                wins_FS[row, column] = 0.5 if own == beside else float(beside < own)
    return wins_FS


def share(wins_FS: Floats, rows_RF: Floats, columns_RS: Floats) -> Floats:
    """The mean of the known pairs under weights of rows and columns, for each repetition."""
    known_FS = ~np.isnan(wins_FS)
    # A sum over three operands at once would take their product element by element.
    weight_R = ((rows_RF @ known_FS.astype(float)) * columns_RS).sum(axis=1)
    total_R = ((rows_RF @ np.where(known_FS, wins_FS, 0.0)) * columns_RS).sum(axis=1)
    return np.asarray(np.where(weight_R > 0, total_R / np.maximum(weight_R, 1e-300), np.nan))


def alarms(courses: Sequence[Course]) -> Alarms:
    """Warnings at a fixed rate of false alarms: the mean exceeds a threshold for the first time.
    Strata without stable runs have no threshold and are left out."""
    leads, counts, false, stable_runs = [], 0, 0, 0
    for stratum in dict.fromkeys(one.stratum for one in courses):
        own = [one for one in courses if one.stratum == stratum]
        peaks = np.sort([one.mean_R.max() for one in own if one.collapse is None])
        if not len(peaks):
            continue
        threshold = peaks[len(peaks) - 1 - int(FALSE_ALARMS * len(peaks))]
        false += int((peaks > threshold).sum())
        stable_runs += len(peaks)
        for one in own:
            if one.collapse is not None:
                counts += 1
                over = np.flatnonzero(one.mean_R[: one.collapse] > threshold)
                leads += [one.collapse - int(over[0])] if len(over) else []
    median = float(np.median(leads)) if leads else math.nan
    return Alarms(len(leads), counts, median, false, stable_runs)
