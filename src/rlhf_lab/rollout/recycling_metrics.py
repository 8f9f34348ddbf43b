"""Metrics of rounds whose unfinished groups go on in the next one (mode.over_provision)."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.rollout.open_groups import OpenGroup, RecyclingRule
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.samples import Finish


def recycling_metrics(
    before: Sequence[OpenGroup],
    after: Sequence[OpenGroup],
    chosen: Sequence[OpenGroup],
    rule: RecyclingRule,
    round_: int,
) -> Metrics:
    """before, after: all groups in flight at the round's first step and at its last. chosen: those
    that it trains on. Docs of each are in runs/metric_names.py."""
    keys = {one.key for one in chosen}
    left = [one for one in after if one.key not in keys]
    trained = sum(one.tokens for one in chosen)
    earlier = sum(tokens_before(one, round_) for one in chosen)
    metrics: Metrics = {
        "recycled/groups": sum(one.position > 0 for one in before),
        "recycled/groups_due": sum(rule.is_due(one, round_) for one in before),
        "recycled/groups_left": len(left),
        "recycled/groups_ahead": sum(one.is_complete for one in left),
        "recycled/tokens": earlier,
        "recycled/share": earlier / trained,
        "recycled/steps": max(one.steps for one in after),
        "recycled/idle": idle_share(before, after),
    }
    if samples := [sample for one in left for sample in one.group.samples]:
        metrics["recycled/length_left"] = sum(len(s.tokens) for s in samples) / len(samples)
    return metrics


def tokens_before(one: OpenGroup, round_: int) -> int:
    """Tokens of a group that versions before the round's own wrote."""
    return sum(
        sum(version < round_ for version in sample.versions)
        if sample.versions
        else len(sample.tokens) * (sample.version < round_)
        for sample in one.group.samples
    )


def idle_share(before: Sequence[OpenGroup], after: Sequence[OpenGroup]) -> float:
    """Share of the round's decode steps, over all samples that were unfinished at its first one, in
    which a sample got no token because it had ended; 0 if the round decoded nothing."""
    steps = max(one.steps for one in after)
    slots = sum(s.finish is Finish.unfinished for one in before for s in one.group.samples)
    written = sum(one.all_steps for one in after) - sum(one.all_steps for one in before)
    return 1 - written / (steps * slots) if steps else 0.0
