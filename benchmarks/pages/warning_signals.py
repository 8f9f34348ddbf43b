"""Does a signal warn of a collapse: AUROC at a lead time, and lead at a rate of false alarms.

A signal is read as its mean over the last `WINDOW` rounds. AUROC compares a run that collapses with
a stable one at the same round, so that what every run does at its start counts for nothing: was the
mean higher in the run that would collapse `lead` rounds later? An alarm is raised when the mean
exceeds a threshold for the first time. The definitions are of this package; no paper is followed.
"""

from __future__ import annotations

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
    signal, `lead` rounds before it collapsed, with its interval over runs; not a number where there
    are no pairs. collapsed, stable: runs that are in a pair."""

    lead: int
    auroc: float
    low: float
    high: float
    collapsed: int
    stable: int


@dataclass(frozen=True)
class Alarms:
    """Collapsed runs in which the signal had crossed its threshold at least a round before, and how
    many rounds before in the median of those that it warned of. threshold: for each stratum, the
    least that no more than `FALSE_ALARMS` of its stable runs ever exceed."""

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
    begin = np.full(window - 1, -np.inf)
    return np.asarray(np.concatenate([begin, mean]))


def concordance(courses: Sequence[Course], lead: int, seed: int = 0) -> Concordance:
    """The AUROC `lead` rounds before collapse, with a bootstrap interval over runs.

    Runs that collapse before there is a whole window by then are left out. Raises UserError for a
    lead below 1: at its collapse a run needs no warning.
    """
    if lead < 1:
        raise UserError(f"lead={lead}: pass 1 round or more before the collapse")
    fallen = [one for one in courses if one.collapse is not None]
    fallen = [one for one in fallen if (one.collapse or 0) - lead >= WINDOW - 1]
    stable = [one for one in courses if one.collapse is None]
    wins = wins_of(fallen, stable, lead)
    in_pair = ~np.isnan(wins)
    rows, columns = in_pair.any(axis=1), in_pair.any(axis=0)
    wins = wins[rows][:, columns]
    if not wins.size:
        return Concordance(lead, np.nan, np.nan, np.nan, 0, 0)
    rng = np.random.default_rng([seed, lead, *wins.shape])
    ones = np.ones((1, len(wins))), np.ones((1, wins.shape[1]))
    drawn = [
        rng.multinomial(size, np.full(size, 1 / size), REPETITIONS).astype(float)
        for size in wins.shape
    ]
    values = share(wins, *drawn)
    low, high = np.nanquantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Concordance(lead, float(share(wins, *ones)[0]), float(low), float(high), *wins.shape)


def wins_of(fallen: Sequence[Course], stable: Sequence[Course], lead: int) -> Floats:
    """For each collapsed and each stable run, (F, S): 1 if the collapsed one's signal was the
    higher one, 0.5 for a tie, NaN for other strata. A stable run that ended before keeps its last
    mean."""
    wins_FS = np.full((len(fallen), len(stable)), np.nan)
    for stratum in {one.stratum for one in fallen} & {one.stratum for one in stable}:
        rows, columns = (
            [number for number, one in enumerate(side) if one.stratum == stratum]
            for side in (fallen, stable)
        )
        means = [stable[number].mean_R for number in columns]
        longest = max(map(len, means))
        means_SR = np.array([np.pad(one, (0, longest - len(one)), mode="edge") for one in means])
        at_F = [(fallen[number].collapse or 0) - lead for number in rows]
        own_F = np.array([fallen[n].mean_R[at] for n, at in zip(rows, at_F, strict=True)])
        other_FS = means_SR[:, np.minimum(at_F, longest - 1)].T
        own_F1 = own_F[:, None]
        wins_FS[np.ix_(rows, columns)] = np.where(other_FS == own_F1, 0.5, other_FS < own_F1)
    return wins_FS


def share(wins: Floats, rows_R: Floats, columns_R: Floats) -> Floats:
    """The mean of the known pairs under weights of rows and columns, for each repetition."""
    known = ~np.isnan(wins)
    # A sum over three operands at once would take their product element by element.
    weight_R = ((rows_R @ known.astype(float)) * columns_R).sum(axis=1)
    total_R = ((rows_R @ np.where(known, wins, 0.0)) * columns_R).sum(axis=1)
    return np.asarray(np.where(weight_R > 0, total_R / np.maximum(weight_R, 1e-300), np.nan))


def alarms(courses: Sequence[Course]) -> Alarms:
    """Warnings at a fixed rate of false alarms; strata without stable runs have no threshold and
    are left out."""
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
    median = float(np.median(leads)) if leads else np.nan
    return Alarms(len(leads), counts, median, false, stable_runs)
