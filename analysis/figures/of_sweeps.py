"""The figures of sweeps/ besides those of the paper, by name, and what they need."""

from __future__ import annotations

from analysis.figures import questions
from analysis.figures.entry import Entry, Wants
from analysis.figures.names import GOLD, KL, PROXY, UPDATES, WIN_RATE

N, S = "updates_per_round", "max_staleness"
LEVELS = (WIN_RATE, KL)

OF_SWEEPS = (
    Entry(
        "rate_schedule",
        "win-rate and KL against N with the learning rate moved per update and per round",
        ("rate_schedule",),
        Wants((N, questions.PER), (N, questions.PER), LEVELS),
        questions.rate_schedule,
    ),
    Entry(
        "staleness",
        "win-rate and KL against S by correction",
        ("staleness",),
        Wants((S, "correction"), (S, "correction"), LEVELS),
        questions.staleness,
    ),
    Entry(
        "corrections",
        "win-rate and KL at the end with each correction",
        ("corrections",),
        Wants(("correction",), ("correction",), LEVELS),
        questions.corrections,
    ),
    Entry(
        "lag_distribution",
        "win-rate and KL at the end with each distribution of lags",
        ("lag_distribution",),
        Wants((S, questions.LAGS), (questions.LAGS,), LEVELS),
        questions.lag_distribution,
    ),
    Entry(
        "algorithms",
        "win-rate and KL at the end of each algorithm by N",
        ("algorithms",),
        Wants(("algo", N), ("algo",), LEVELS),
        questions.algorithms,
    ),
    Entry(
        "over_optimisation",
        "gold and proxy reward against KL by how proxies are combined",
        ("over_optimisation",),
        Wants(("reward", "reward.combine"), ("reward",), (GOLD, PROXY, KL, UPDATES)),
        questions.over_optimisation,
    ),
)
