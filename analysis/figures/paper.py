"""The figures of asynchronous RLHF (arXiv:2410.18252)."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures import timelines
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.ladders import LadderSpec, ladder
from rlhf_lab_analysis.figures.paired import difference_ladder
from rlhf_lab_analysis.figures.panels import begin, ends, grid, in_rows
from rlhf_lab_analysis.figures.requirement import Requirement
from rlhf_lab_analysis.plots.round_seconds import COLUMNS
from rlhf_lab_analysis.words import (
    ACCURACY,
    COMPLETIONS,
    DEVICE_HOURS,
    FLOPS,
    GOLD,
    KL,
    UPDATES,
    WALL,
    WIN_RATE,
)

N, T, K = "updates_per_round", "passes", "group_size"
MODES = {"mode": ("sync", "async")}
SYNC_ASYNC, LADDER = ("sync_async",), ("off_policy_ladder",)


@figure(
    "fig1_win_rate_and_cost",
    "win-rate against wall-clock, device-hours and FLOPs, sync and async by scale (figure 1)",
    "Win-rate against what it cost, sync and async at each scale of the policy",
    Requirement(("mode", "model"), (WIN_RATE, WALL, DEVICE_HOURS, FLOPS), ("mode",), MODES),
    SYNC_ASYNC,
)
def win_rate_and_cost(families: Sequence[Family]) -> FigureBuilder:
    pairs = [(x, WIN_RATE) for x in (WALL, DEVICE_HOURS, FLOPS)]
    return grid(families, ("mode", "model"), pairs, ("task", "algo"))


@figure(
    "fig2_timelines",
    "who worked when in measured rounds of sync and async (figure 2)",
    "Who works when, sync and async, in rounds of real runs",
    Requirement(("mode",), (), where=MODES, recorded=COLUMNS),
    SYNC_ASYNC,
)
def sync_and_async_timelines(families: Sequence[Family]) -> FigureBuilder:
    note = (
        "Seconds are the ledger's; the generator's begin is the earliest that its own seconds and "
        "the staleness bound allow."
    )
    return timelines.draw(families, ("mode", "model"), note, timelines.measured_lanes)


@figure(
    "fig3_off_policy_ladder",
    "win-rate and KL over training, and one against the other, by N (figure 3)",
    "Off-policyness N: win-rate and drift over training, and one against the other",
    Requirement((N,), (WIN_RATE, KL, UPDATES)),
    LADDER,
)
def off_policy_ladder(families: Sequence[Family], drift: str = KL) -> FigureBuilder:
    pairs = [(UPDATES, WIN_RATE), (UPDATES, drift), (drift, WIN_RATE)]
    return grid(families, (N,), pairs, ("algo", "model"), paired=(UPDATES, WIN_RATE))


@figure(
    "fig4_losses",
    "where each loss ends in win-rate and KL, and its win-rate against N (figure 4)",
    "Losses under off-policyness: where training ends in win-rate and KL at each N",
    Requirement(("algo", N), (WIN_RATE, KL)),
    LADDER,
)
def losses(families: Sequence[Family], drift: str = KL) -> FigureBuilder:
    return ends_and_ladders(families, ("algo", N), (WIN_RATE,), ("task", "model"), drift)


@figure(
    "fig5_policy_scale",
    "win-rate and KL against N by size of the policy (figure 5, left)",
    "Size of the policy: what N costs at each",
    Requirement(("model", N), (WIN_RATE, KL)),
    ("policy_scale",),
    # Its smallest policies, where a sweep of larger ones leaves them out.
    beside=LADDER,
)
def policy_scale(families: Sequence[Family], drift: str = KL) -> FigureBuilder:
    return ends_and_ladders(families, ("model", N), (WIN_RATE, drift), ("task", "algo"), drift)


@figure(
    "fig5_reward_scale",
    "win-rate and KL against N by size of the proxy (figure 5, right)",
    "Size of the reward model: what N costs at each",
    Requirement(("proxy", "reward", N), (WIN_RATE, KL), (N,), any_of=("proxy", "reward")),
    ("reward_scale",),
    beside=LADDER,
)
def reward_scale(families: Sequence[Family], drift: str = KL) -> FigureBuilder:
    key = "proxy" if len(families[0].values("proxy")) > 1 else "reward"
    return ends_and_ladders(families, (key, N), (WIN_RATE, drift), ("task", "algo"), drift)


@figure(
    "fig6_who_waits",
    "timelines from measured seconds by T and K: which side waits (figure 6)",
    "Who waits, by passes T and samples a prompt K",
    Requirement((T, K), (), (), any_of=(T, K), recorded=COLUMNS),
    ("passes", "samples_per_prompt"),
)
def who_waits(families: Sequence[Family]) -> FigureBuilder:
    note = (
        "Seconds are the ledger's, laid out as they would be with a generator beside the trainer, "
        "one round ahead and nothing else taking time."
    )
    return timelines.draw(families, (T, K, "model"), note, timelines.ideal_lanes)


@figure(
    "fig7_passes",
    "win-rate and KL against samples, and one against the other, by T (figure 7)",
    "T passes over a round at equal updates: samples saved, and drift",
    Requirement((T,), (WIN_RATE, KL, COMPLETIONS)),
    ("passes",),
)
def passes(families: Sequence[Family], drift: str = KL) -> FigureBuilder:
    return grid(families, (T,), [(COMPLETIONS, WIN_RATE), (COMPLETIONS, drift), (drift, WIN_RATE)])


@figure(
    "fig8_samples",
    "win-rate against updates, FLOPs and KL, by K (figure 8)",
    "K samples a prompt, more of them in fewer updates: steps and compute saved, and drift",
    Requirement((K,), (WIN_RATE, KL, UPDATES, FLOPS)),
    ("samples_per_prompt",),
    # Where a policy's runs of fewest samples are those of one pass.
    beside=("passes",),
)
def samples(families: Sequence[Family], drift: str = KL) -> FigureBuilder:
    return grid(families, (K,), [(UPDATES, WIN_RATE), (FLOPS, WIN_RATE), (drift, WIN_RATE)])


@figure(
    "fig9_reward_and_drift",
    "gold reward of sync and async against KL and wall-clock (figure 9)",
    "Sync and async: gold reward against drift and against time",
    Requirement(("mode",), (GOLD, KL, WALL), where=MODES),
    (*SYNC_ASYNC, "chats"),
)
def reward_and_drift(families: Sequence[Family], drift: str = KL) -> FigureBuilder:
    return grid(families, ("mode",), [(drift, GOLD), (WALL, GOLD), (WALL, drift)])


@figure(
    "gsm8k_accuracy",
    "accuracy against wall-clock, device-hours and updates, sync and async by loss (GSM8k)",
    "Share of problems solved against what it cost, sync and async for each loss",
    Requirement(("mode", "algo"), (ACCURACY, WALL, DEVICE_HOURS, UPDATES), ("mode",), MODES),
    ("verified_answers",),
)
def accuracy(families: Sequence[Family]) -> FigureBuilder:
    pairs = [(x, ACCURACY) for x in (WALL, DEVICE_HOURS, UPDATES)]
    return grid(families, ("mode", "algo"), pairs)


def ends_and_ladders(
    families: Sequence[Family],
    keys: tuple[str, str],
    metrics: Sequence[str],
    title: Sequence[str],
    drift: str,
) -> FigureBuilder:
    """Win-rate against drift at the end, beside it each metric against N, and the win-rate less
    that of the least N."""
    builder, axes = begin(len(families), 2 + len(metrics))
    for family, row in in_rows(builder, families, axes, title):
        ends(builder, row[0], family, keys, (drift, WIN_RATE))
        for panel, metric in zip(row[1:-1], metrics, strict=True):
            ladder(builder, panel, family.cells, LadderSpec(N, metric, keys))
        difference_ladder(builder, row[-1], family.cells, LadderSpec(N, WIN_RATE, keys))
    return builder
