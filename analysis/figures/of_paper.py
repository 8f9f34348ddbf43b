"""The paper's figures by name (arXiv:2410.18252), and what they need."""

from __future__ import annotations

from analysis.figures import paper, timelines
from analysis.figures.entry import Entry, Wants
from analysis.figures.names import (
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
OWN_TIME = ("sync_async",)

OF_PAPER = (
    Entry(
        "fig1_win_rate_and_cost",
        "win-rate against wall-clock, device-hours and FLOPs, sync and async by scale (figure 1)",
        OWN_TIME,
        Wants(("mode", "model"), ("mode",), (WIN_RATE, WALL, DEVICE_HOURS, FLOPS), MODES),
        paper.cost_of_win_rate,
    ),
    Entry(
        "fig2_timelines",
        "who worked when in measured rounds of sync and async (figure 2)",
        OWN_TIME,
        Wants(("mode",), ("mode",), (), MODES, recorded=timelines.NEEDS),
        timelines.sync_and_async,
    ),
    Entry(
        "fig3_off_policy_ladder",
        "win-rate and KL over training, and one against the other, by N (figure 3)",
        ("off_policy_ladder",),
        Wants((N,), (N,), (WIN_RATE, KL, UPDATES)),
        paper.ladder_of_n,
    ),
    Entry(
        "fig4_losses",
        "where each loss ends in win-rate and KL, and its win-rate against N (figure 4)",
        ("off_policy_ladder",),
        Wants(("algo", N), ("algo", N), (WIN_RATE, KL)),
        paper.losses,
    ),
    Entry(
        "fig5_policy_scale",
        "win-rate and KL against N by size of the policy (figure 5, left)",
        ("policy_scale",),
        Wants(("model", N), ("model", N), (WIN_RATE, KL)),
        paper.policy_scale,
    ),
    Entry(
        "fig5_reward_scale",
        "win-rate and KL against N by size of the proxy (figure 5, right)",
        ("reward_scale",),
        Wants(("proxy", "reward", N), (N,), (WIN_RATE, KL), any_of=("proxy", "reward")),
        paper.reward_scale,
    ),
    Entry(
        "fig6_who_waits",
        "timelines from measured seconds by T and K: which side waits (figure 6)",
        ("passes", "samples_per_prompt"),
        Wants((T, K), (), (), any_of=(T, K), recorded=timelines.NEEDS),
        timelines.bound_by,
    ),
    Entry(
        "fig7_passes",
        "win-rate and KL against samples, and one against the other, by T (figure 7)",
        ("passes",),
        Wants((T,), (T,), (WIN_RATE, KL, COMPLETIONS)),
        paper.passes,
    ),
    Entry(
        "fig8_samples",
        "win-rate against updates, FLOPs and KL, by K (figure 8)",
        ("samples_per_prompt",),
        Wants((K,), (K,), (WIN_RATE, KL, UPDATES, FLOPS)),
        paper.samples,
    ),
    Entry(
        "fig9_reward_and_drift",
        "gold reward of sync and async against KL and wall-clock (figure 9)",
        OWN_TIME,
        Wants(("mode",), ("mode",), (GOLD, KL, WALL), MODES),
        paper.reward_and_drift,
    ),
    Entry(
        "gsm8k_accuracy",
        "accuracy against wall-clock, device-hours and updates, sync and async by loss (GSM8k)",
        (),
        Wants(("mode", "algo"), ("mode",), (ACCURACY, WALL, DEVICE_HOURS, UPDATES), MODES),
        paper.accuracy,
    ),
)
