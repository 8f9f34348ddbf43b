"""What the judge found of each task of a mixture."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.evaluation.measures.intervals import mean, with_interval
from rlhf_lab.evaluation.measures.pass_at_k import SOLVED
from rlhf_lab.evaluation.measures.verdicts import Judged
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.samples import MIXED_TASK, Group


def task_metrics(
    groups: Sequence[Group], judged: Sequence[Judged | None], is_verified: bool
) -> Metrics:
    """Mean score, and where there are any win-rate and accuracy, of each task of a mixture of which
    a prompt was judged."""
    found: dict[str, list[Judged]] = {}
    for group, row in zip(groups, judged, strict=True):
        name = group.prompt.example.hidden.get(MIXED_TASK)
        if name is not None and row is not None:
            found.setdefault(str(name), []).append(row)
    metrics: Metrics = {}
    for name in sorted(found):
        scores, wins = [row.gold for row in found[name]], [row.win for row in found[name]]
        metrics[f"task/{name}/gold_mean"] = mean(scores)
        known = [win for win in wins if win is not None]
        if known:
            metrics |= with_interval(f"task/{name}/win_rate", known)
        if is_verified:
            metrics |= with_interval(
                f"task/{name}/accuracy", [float(score >= SOLVED) for score in scores]
            )
    return metrics
