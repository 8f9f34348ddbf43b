"""The figures of asynchronous RLHF (arXiv:2410.18252), each a function of families."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figures.families import Family
from analysis.figures.figure_builder import Drawn
from analysis.figures.ladders import Steps, ladder
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
from analysis.figures.panels import begin, ends, grid, in_rows

N, S, T, K = "updates_per_round", "max_staleness", "passes", "group_size"


def cost_of_win_rate(families: Sequence[Family]) -> Drawn:
    """Figure 1: win-rate against wall-clock, device-hours and FLOPs, sync and async by scale."""
    shows = "Win-rate against what it cost, sync and async at each scale of the policy"
    pairs = [(x, WIN_RATE) for x in (WALL, DEVICE_HOURS, FLOPS)]
    return grid(shows, families, ("mode", "model"), pairs, ("task", "algo")).drawn()


def ladder_of_n(families: Sequence[Family]) -> Drawn:
    """Figure 3: win-rate and KL against updates, and win-rate against KL, by N."""
    shows = "Off-policyness N: win-rate and drift over training, and one against the other"
    pairs = [(UPDATES, WIN_RATE), (UPDATES, KL), (KL, WIN_RATE)]
    return grid(shows, families, (N,), pairs, ("algo", "model")).drawn()


def losses(families: Sequence[Family]) -> Drawn:
    """Figure 4: win-rate against KL at the end, and against N, by loss."""
    shows = "Losses under off-policyness: where training ends in win-rate and KL at each N"
    builder, axes = begin(shows, len(families), 2)
    for family, row in in_rows(builder, families, axes, ("task", "model")):
        ends(builder, row[0], family, ("algo", N), (KL, WIN_RATE))
        ladder(builder, row[1], family.cells, Steps(N, WIN_RATE, ("algo", N)))
    return builder.drawn()


def policy_scale(families: Sequence[Family]) -> Drawn:
    """Figure 5, left: N at several sizes of the policy."""
    return scale(families, "model", "Size of the policy: what N costs at each")


def reward_scale(families: Sequence[Family]) -> Drawn:
    """Figure 5, right: N at several sizes of the proxy reward model."""
    key = "proxy" if len(families[0].values("proxy")) > 1 else "reward"
    return scale(families, key, "Size of the reward model: what N costs at each")


def scale(families: Sequence[Family], key: str, shows: str) -> Drawn:
    builder, axes = begin(shows, len(families), 3)
    for family, row in in_rows(builder, families, axes, ("task", "algo")):
        ends(builder, row[0], family, (key, N), (KL, WIN_RATE))
        ladder(builder, row[1], family.cells, Steps(N, WIN_RATE, (key, N)))
        ladder(builder, row[2], family.cells, Steps(N, KL, (key, N)))
    return builder.drawn()


def passes(families: Sequence[Family]) -> Drawn:
    """Figure 7: T passes, win-rate against samples, KL against samples, win-rate against KL."""
    shows = "T passes over a round at equal updates: samples saved, and drift"
    pairs = [(COMPLETIONS, WIN_RATE), (COMPLETIONS, KL), (KL, WIN_RATE)]
    return grid(shows, families, (T,), pairs).drawn()


def samples(families: Sequence[Family]) -> Drawn:
    """Figure 8: K = 2 and K = 4, win-rate against updates and FLOPs, and against KL."""
    shows = "K samples a prompt, more of them in fewer updates: steps and compute saved, and drift"
    pairs = [(UPDATES, WIN_RATE), (FLOPS, WIN_RATE), (KL, WIN_RATE)]
    return grid(shows, families, (K,), pairs).drawn()


def reward_and_drift(families: Sequence[Family]) -> Drawn:
    """Figure 9: gold reward of sync and async against KL and wall-clock, and KL against time."""
    shows = "Sync and async: gold reward against drift and against time"
    pairs = [(KL, GOLD), (WALL, GOLD), (WALL, KL)]
    return grid(shows, families, ("mode",), pairs).drawn()


def accuracy(families: Sequence[Family]) -> Drawn:
    """GSM8k: accuracy of sync and async by loss against wall-clock, device-hours and updates."""
    shows = "Share of problems solved against what it cost, sync and async for each loss"
    pairs = [(x, ACCURACY) for x in (WALL, DEVICE_HOURS, UPDATES)]
    return grid(shows, families, ("mode", "algo"), pairs).drawn()
