"""The figures of sweeps that are not figures of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.interval_rows import level_rows
from rlhf_lab_analysis.figures.ladders import LadderSpec, ladder
from rlhf_lab_analysis.figures.paired import difference_ladder, paired_rows
from rlhf_lab_analysis.figures.panels import begin, grid, in_rows
from rlhf_lab_analysis.figures.requirement import Requirement
from rlhf_lab_analysis.figures.style import DOUBLE, page
from rlhf_lab_analysis.figures.tick_room import roomy_ticks
from rlhf_lab_analysis.words import GOLD, KL, PROXY, UPDATES, VIRTUAL, WIN_RATE, in_words

N, S = "updates_per_round", "max_staleness"
PER, LAGS, COMBINE = "optim.schedule_per", "mode.lag_probabilities", "reward.combine"
LAMBDA = "algo.lam"
TAIL, ORDER, STALE = "cluster.length_power", "cluster.order", "mode.when_stale"
DEADLINE, MASKED = "episodes.tool_deadline", "run.mask_truncated"
TOOL_TAIL = "episodes.tool_sigma"
# What changes with a tail, for equal means, and with a queue that drops.
WITH_THEM = ("cluster.length_scale", "mode.extra_rounds")
LEVELS = (WIN_RATE, KL)
# Of a line of a title above rows.
TITLE_LETTERS = 48


@figure(
    "rate_schedule",
    "win-rate and KL against N with the learning rate moved per update and per round",
    "Learning rate moved per update and per round: what N costs with each",
    Requirement((N, PER), LEVELS),
    ("rate_schedule",),
)
def rate_schedule(families: Sequence[Family]) -> FigureBuilder:
    return ladders(families, N, PER)


@figure(
    "staleness",
    "win-rate and KL against S by correction",
    "Samples S rounds old, with and without correction",
    Requirement((S, "correction"), LEVELS),
    ("staleness",),
)
def staleness(families: Sequence[Family]) -> FigureBuilder:
    return ladders(families, S, "correction")


@figure(
    "corrections",
    "win-rate and KL at the end with each correction",
    "Corrections of stale samples: where each ends",
    Requirement(("correction",), LEVELS),
    ("corrections",),
)
def corrections(families: Sequence[Family]) -> FigureBuilder:
    return rows_of_levels(families, ("correction",))


@figure(
    "lag_distribution",
    "win-rate and KL at the end with each distribution of lags",
    "How lag is spread: where each distribution ends",
    Requirement((S, LAGS), LEVELS, (LAGS,)),
    ("lag_distribution",),
)
def lag_distribution(families: Sequence[Family]) -> FigureBuilder:
    return rows_of_levels(families, (S, LAGS))


@figure(
    "algorithms",
    "win-rate and KL at the end of each algorithm by N",
    "Algorithms on fresh samples and on rounds of N minibatches",
    Requirement(("algo", N), LEVELS, ("algo",)),
    ("algorithms",),
)
def algorithms(families: Sequence[Family]) -> FigureBuilder:
    return rows_of_levels(families, ("algo", N))


@figure(
    "over_optimisation",
    "gold and proxy reward against KL by how proxies are combined",
    "Over-optimisation: gold and proxy reward on the way from SFT, by reward",
    Requirement(("reward", COMBINE), (GOLD, PROXY, KL, UPDATES), ("reward",)),
    ("over_optimisation",),
)
def over_optimisation(families: Sequence[Family]) -> FigureBuilder:
    return grid(families, (COMBINE,), [(KL, GOLD), (KL, PROXY), (UPDATES, GOLD)], ("algo", "model"))


@figure(
    "queue_policies",
    "win-rate, KL and virtual seconds at the end with each queue and tail of lengths",
    "Queues of a virtual cluster: where each ends, by the tail of lengths",
    Requirement(
        (TAIL, ORDER, STALE, *WITH_THEM),
        (*LEVELS, VIRTUAL),
        (),
        {"mode": ("virtual",)},
        any_of=(ORDER, STALE),
    ),
    ("queue_policies",),
)
def queue_policies(families: Sequence[Family]) -> FigureBuilder:
    keys, metrics = (TAIL, ORDER, STALE), (*LEVELS, VIRTUAL)
    return rows_of_levels(families, keys, ("algo", "model", S), metrics)


@figure(
    "turns",
    "win-rate and KL at the end with old turns in episodes",
    "Episodes whose turns are fresh, old, or old at first: where each ends",
    Requirement(
        ("mode", S, "correction"), LEVELS, ("mode",), {"mode": ("lagged", "partial_turns")}
    ),
    ("turns",),
)
def turns(families: Sequence[Family]) -> FigureBuilder:
    return rows_of_levels(families, ("mode", S, "correction"))


@figure(
    "turns_lambda",
    "win-rate and KL at the end with each lambda of PPO in episodes",
    "Episodes with PPO: where each lambda ends, with turns that are fresh, old, or old at first",
    Requirement(
        (LAMBDA, "mode", S), LEVELS, (LAMBDA,), {"mode": ("sync", "lagged", "partial_turns")}
    ),
    ("turns_lambda",),
)
def turns_lambda(families: Sequence[Family]) -> FigureBuilder:
    return rows_of_levels(families, (LAMBDA, "mode", S))


@figure(
    "stragglers",
    "win-rate and KL at the end with each limit of the time that tools take",
    "Episodes that are cut where a tool takes too long: where each limit ends",
    Requirement((DEADLINE, MASKED), LEVELS, (), any_of=(DEADLINE,)),
    ("stragglers",),
)
def stragglers(families: Sequence[Family]) -> FigureBuilder:
    return rows_of_levels(families, (DEADLINE, MASKED))


@figure(
    "slow_tools",
    "win-rate, KL and virtual seconds at the end with slow tools, by staleness",
    "Episodes with slow tools on a virtual cluster: where each staleness ends, and how soon",
    Requirement(
        (TOOL_TAIL, S, *WITH_THEM),
        (*LEVELS, VIRTUAL),
        (TOOL_TAIL,),
        {"mode": ("virtual",)},
        any_of=(S,),
    ),
    ("slow_tools",),
)
def slow_tools(families: Sequence[Family]) -> FigureBuilder:
    return rows_of_levels(families, (TOOL_TAIL, S), metrics=(*LEVELS, VIRTUAL))


def ladders(families: Sequence[Family], over: str, key: str) -> FigureBuilder:
    """Win-rate and KL at the end over a number, a line for each value of the key, and win-rates
    less that of the least number."""
    builder, axes = begin(len(families), 1 + len(LEVELS))
    for family, row in in_rows(builder, families, axes, ("algo", "model")):
        for panel, metric in zip(row, LEVELS, strict=False):
            ladder(builder, panel, family.cells, LadderSpec(over, metric, (key,)))
        difference_ladder(builder, row[-1], family.cells, LadderSpec(over, WIN_RATE, (key,)))
    return builder


def rows_of_levels(
    families: Sequence[Family],
    keys: Sequence[str],
    title: Sequence[str] = ("algo", "model"),
    metrics: Sequence[str] = LEVELS,
) -> FigureBuilder:
    """Metrics at the end, a row for each condition, and between them win-rates less that of the
    freshest one. title: what names a family."""
    most = max(len(family.cells) for family in families)
    height = 0.6 + 0.17 * most
    figure_, axes = page(len(families), len(metrics) + 1, DOUBLE, height, sharey="row")
    builder = FigureBuilder(figure_)
    for family, row in in_rows(builder, families, axes.tolist(), title):
        for panel, metric in zip([row[0], *row[2:]], metrics, strict=True):
            level_rows(builder, panel, family.cells, metric, keys)
        # Names of rows leave the first panel less room than a title takes.
        row[0].set_title(fill(in_words(builder.group), TITLE_LETTERS))
        paired_rows(builder, row[1], family.cells, WIN_RATE, keys)
        for panel in row:
            roomy_ticks(panel)
    return builder
