"""Gap between proxy and gold scores, which shows over-optimisation of the reward."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab.evaluation.measures.intervals import mean
from rlhf_lab.types.data import Metrics


@dataclass(frozen=True)
class Scored:
    """Two scores of a prompt by one scorer: of the sample and of the reference answer."""

    sample: float
    reference: float

    @property
    def margin(self) -> float:
        """How much better the sample is."""
        return self.sample - self.reference


def margin_metrics(proxy: Sequence[Scored]) -> Metrics:
    """The proxy against the references, of a run that nobody judges."""
    if not proxy:
        return {}
    return {
        "proxy/reference_mean": mean([scored.reference for scored in proxy]),
        "proxy/win_rate": mean([float(scored.margin > 0) for scored in proxy]),
    }


def gap_metrics(gold: Sequence[Scored], proxy: Sequence[Scored], wins: Sequence[float]) -> Metrics:
    """Proxy against gold over the same prompts. wins: of gold.

    What cannot be computed (references of equal score, margins of equal rank) is left out.
    """
    rate = mean([float(scored.margin > 0) for scored in proxy])
    metrics: Metrics = {"proxy/win_rate": rate, "gap/win_rate": rate - mean(wins)}
    standard_gold, standard_proxy = standard_margin(gold), standard_margin(proxy)
    if list(gold) == list(proxy):
        metrics["gap/proxy_gold"] = 0.0
    elif standard_gold is not None and standard_proxy is not None:
        metrics["gap/proxy_gold"] = standard_proxy - standard_gold
    margins = ([scored.margin for scored in proxy], [scored.margin for scored in gold])
    correlation = rank_correlation(*margins)
    if correlation is not None:
        metrics["gap/rank_correlation"] = correlation
    return metrics


def standard_margin(scores: Sequence[Scored]) -> float | None:
    """Mean margin in standard deviations of the references' scores; None if those are all equal."""
    references = [scored.reference for scored in scores]
    if min(references) == max(references):
        return None
    return mean([scored.margin for scored in scores]) / statistics.pstdev(references)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's: the correlation of ranks, where equal numbers share the mean of their ranks.

    None if one side has but one rank.
    """
    if min(left) == max(left) or min(right) == max(right):
        return None
    return statistics.correlation(ranks(left), ranks(right))


def ranks(values: Sequence[float]) -> list[float]:
    """Rank of each number, from 1; equal ones share the mean of their ranks."""
    order = sorted(values)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for place, value in enumerate(order, start=1):
        first.setdefault(value, place)
        last[value] = place
    return [(first[value] + last[value]) / 2 for value in values]
