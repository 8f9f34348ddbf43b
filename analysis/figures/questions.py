"""The questions of sweeps/ that are not figures of the paper, each a function of families."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.figures.families import Family
from analysis.figures.figure_builder import Drawn, FigureBuilder
from analysis.figures.ladders import Steps, ladder, level_rows
from analysis.figures.names import GOLD, KL, PROXY, UPDATES, WIN_RATE
from analysis.figures.panels import begin, grid, in_rows
from analysis.figures.style import DOUBLE, page

N, S = "updates_per_round", "max_staleness"
PER = "optim.schedule_per"
LAGS = "mode.lag_probabilities"


def over_number(families: Sequence[Family], shows: str, over: str, told: Sequence[str]) -> Drawn:
    """Win-rate and KL at the end over a number, a line for each value told."""
    builder, axes = begin(shows, len(families), 2)
    for family, row in in_rows(builder, families, axes, ("algo", "model")):
        for panel, metric in zip(row, (WIN_RATE, KL), strict=True):
            ladder(builder, panel, family.cells, Steps(over, metric, told))
    return builder.drawn()


def rate_schedule(families: Sequence[Family]) -> Drawn:
    """How much of the loss at large N is a learning rate that moves once per round."""
    shows = "Learning rate moved per update and per round: what N costs with each"
    return over_number(families, shows, N, (PER,))


def staleness(families: Sequence[Family]) -> Drawn:
    """How many rounds stale samples may be, by correction."""
    shows = "Samples S rounds old, with and without correction"
    return over_number(families, shows, S, ("correction",))


def rows_of(told: Sequence[str], shows: str) -> Callable[[Sequence[Family]], Drawn]:
    """Win-rate and KL at the end, a row for each condition."""

    def draw(families: Sequence[Family]) -> Drawn:
        most = max(len(family.cells) for family in families)
        figure, axes = page(len(families), 2, DOUBLE, 0.35 + 0.17 * most, sharey="row")
        builder = FigureBuilder(figure, shows)
        for family, row in in_rows(builder, families, axes.tolist(), ("algo", "model")):
            for panel, metric in zip(row, (WIN_RATE, KL), strict=True):
                level_rows(builder, panel, family.cells, metric, told)
        return builder.drawn()

    return draw


corrections = rows_of(("correction",), "Corrections of stale samples: where each ends")
lag_distribution = rows_of((S, LAGS), "How lag is spread: where each distribution ends")
algorithms = rows_of(("algo", N), "Algorithms on fresh samples and on rounds of N minibatches")


def over_optimisation(families: Sequence[Family]) -> Drawn:
    """Gold and proxy reward against KL, by how proxies are combined."""
    shows = "Over-optimisation: gold and proxy reward on the way from SFT, by reward"
    pairs = [(KL, GOLD), (KL, PROXY), (UPDATES, GOLD)]
    return grid(shows, families, ("reward.combine",), pairs, ("algo", "model")).drawn()
