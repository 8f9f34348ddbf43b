"""The judge's verdicts of samples against reference answers: win-rates, ties, agreement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab.evaluation.measures.intervals import mean, with_interval
from rlhf_lab.evaluation.measures.length_control import length_controlled
from rlhf_lab.types.data import Metrics, Verdict


@dataclass(frozen=True)
class Judged:
    """A prompt that was judged.

    gold, reference_gold: the scores; of a judge that compares, the win and 0.5. win: what it counts
    in the win-rate. points: the same with a half for a tie. All but gold are None where there is no
    reference. agrees: whether both orders gave the same verdict; None for one order.
    """

    gold: float
    reference_gold: float | None = None
    win: float | None = None
    points: float | None = None
    agrees: bool | None = None


def by_score(row: tuple[float, ...], reference: tuple[float, ...]) -> Judged | None:
    """The first score against the reference's, a tie being no win; None if one is missing."""
    if not row or not reference:
        return None
    mine, theirs = row[0], reference[0]
    points = 0.5 if mine == theirs else float(mine > theirs)
    return Judged(mine, theirs, float(mine > theirs), points)


def by_itself(row: tuple[float, ...]) -> Judged | None:
    """The first score, of a task without references; None if it is missing."""
    return Judged(row[0]) if row else None


def by_comparison(verdicts: tuple[Verdict, ...]) -> Judged | None:
    """The first verdict, a tie being half a win; None if there is none."""
    if not verdicts:
        return None
    win = verdicts[0].win
    return Judged(win, 0.5, win, win, verdicts[0].agrees)


def win_metrics(judged: Sequence[Judged], length_differences: Sequence[int]) -> Metrics:
    """Metrics of all judged prompts; the mean alone without references. length_differences: tokens
    of the sample less those of the reference."""
    references = [one.reference_gold for one in judged if one.reference_gold is not None]
    if not references:
        return {"gold/mean": mean([one.gold for one in judged])}
    points = [one.points for one in judged if one.points is not None]
    metrics = with_interval("gold/win_rate", [one.win for one in judged if one.win is not None])
    metrics |= {
        "gold/tie_rate": mean([float(one == 0.5) for one in points]),
        "gold/win_rate_length_controlled": length_controlled(points, length_differences),
        "gold/mean": mean([one.gold for one in judged]),
        "gold/reference_mean": mean(references),
    }
    agreements = [float(one.agrees) for one in judged if one.agrees is not None]
    if agreements:
        metrics |= with_interval("judge/agreement", agreements)
    return metrics
