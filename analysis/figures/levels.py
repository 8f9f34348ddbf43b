"""Rows of intervals: aggregates, probability of improvement, differences against a margin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.comparison.claims import Pair, together
from analysis.comparison.selection import Cell
from analysis.figures.blocks import bars, look_of, seeds_text
from analysis.figures.courses import options_for, options_for_counts
from analysis.figures.families import Family
from analysis.figures.looks import GREY, Look
from analysis.figures.names import WIN_RATE, label
from analysis.figures.panels import in_rows
from analysis.figures.pools import baseline, keys_of, names_of
from analysis.figures.sheet import Drawn, Sheet
from analysis.figures.style import DOUBLE, SINGLE, page
from analysis.statistics.aggregates import MEASURES, aggregates
from analysis.statistics.contrasts import matched
from analysis.statistics.equivalence import Verdict, equivalence, points
from analysis.statistics.improvement import probability_of_improvement
from analysis.statistics.results import Estimate

Row: TypeAlias = tuple[str, Estimate, Cell]
# Inches of a row of an interval, and of what is around the rows.
LINE, AROUND, TITLED = 0.16, 0.42, 0.48
# Families from which on they are in two columns; ticks that have room in one.
MANY, FEW_TICKS = 4, 4
TITLE_LETTERS = 38
MARGIN = points(2)
TITLES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}


def interval_rows(
    sheet: Sheet,
    axes: Axes,
    rows: Sequence[Row],
    looks: Sequence[Look],
    metric: str,
    first: Cell | None = None,
) -> None:
    """Draw rows of intervals in one panel, and keep them as data. first: what they are against."""
    bars(axes, [f"{n} (n={seeds(e)})" for n, e, _ in rows], [e for _, e, _ in rows], looks)
    for name, found, cell in rows:
        own = paired_seeds(found, cell, first)
        sheet.runs(cell, found.warnings)
        sheet.framing.see(axes, "x", metric, (found.point, found.low, found.high))
        sheet.add(
            cell, condition=name, part=found.name, y_name=metric, y=found.point, low=found.low,
            high=found.high, n=len(own), seeds=seeds_text(own),
            interval=found.basis.options.text,
        )  # fmt: skip


def paired_seeds(found: Estimate, cell: Cell, first: Cell | None) -> tuple[int, ...]:
    """The seeds of a condition that an estimate stands on: in pairs those that both have."""
    if first is None or not found.name.startswith("paired"):
        return cell.seeds
    return tuple(seed for seed in cell.seeds if seed in first.seeds)


def seeds(found: Estimate) -> str:
    """How many seeds an estimate has, of one condition or of each task."""
    least, most = min(found.basis.seeds), max(found.basis.seeds)
    return str(least) if least == most else f"{least} to {most}"


def tall(families: Sequence[Family], columns: int) -> tuple[Sheet, list[list[Axes]]]:
    """A sheet with a row of panels for each family, as high as its conditions need."""
    heights = [AROUND + LINE * len(family.cells) for family in families]
    width = SINGLE if columns == 1 else DOUBLE
    figure, axes = page(len(families), columns, width, heights, sharex="col", sharey="row")
    return Sheet(figure, ""), axes.tolist()


def beside(families: Sequence[Family]) -> tuple[Sheet, list[Axes]]:
    """A sheet with one panel for each family, as high as its rows need; in two columns if they are
    many. All have the same scale."""
    columns = 1 if len(families) < MANY else 2
    lines = [len(family.cells) - 1 for family in families]
    places = range(0, len(lines), columns)
    heights = [TITLED + LINE * max(lines[place : place + columns]) for place in places]
    width = SINGLE if columns == 1 else DOUBLE
    figure, axes = page(len(heights), columns, width, heights, sharex="all")
    panels = axes.flat[: len(families)].tolist()
    for empty in axes.flat[len(families) :]:
        empty.remove()
    # The last panel of each column, below which there is none.
    for panel in panels[-columns:]:
        panel.tick_params(labelbottom=True)
    for panel in panels:
        panel.xaxis.set_major_locator(MaxNLocator(FEW_TICKS))
    return Sheet(figure, ""), panels


def aggregate_bars(families: Sequence[Family]) -> Drawn:
    """Median, IQM, mean and optimality gap of the last win-rate over environments and seeds."""
    sheet, axes = tall(families, len(MEASURES))
    sheet.shows = "Aggregates of the gold win-rate of the last version over environments and seeds"
    for family, row in in_rows(sheet, families, axes, ("task",)):
        made = by_condition(sheet, family)
        for cell in (cell for held in made.values() for cell in held):
            sheet.runs(cell)
        envs = {name: {c.env: [*c.scores(WIN_RATE).values()] for c in made[name]} for name in made}
        scores = [one for tasks in envs.values() for held in tasks.values() for one in held]
        found = aggregates(envs, options_for(WIN_RATE, scores))
        first = [cells[0] for cells in made.values()]
        looks = [look_of(cell, keys_of(family)) for cell in first]
        for panel, measure in zip(row, MEASURES, strict=True):
            rows = [(name, found[name][measure], cells[0]) for name, cells in made.items()]
            interval_rows(sheet, panel, rows, looks, WIN_RATE)
            panel.set_xlabel(TITLES[measure])
        row[0].set_title(f"{sheet.group}: {label(WIN_RATE)}")
    return sheet.drawn()


def by_condition(sheet: Sheet, family: Family) -> dict[str, list[Cell]]:
    """Conditions by name, with their cell of each environment; those that lack one are told."""
    envs = {cell.env for cell in family.cells}
    keys = [key for key in keys_of(family) if key != "model"]
    found: dict[str, list[Cell]] = {}
    for cell in family.cells:
        found.setdefault(cell.condition, []).append(cell)
    for name in [name for name, cells in found.items() if len(cells) < len(envs)]:
        if len(found) > 1:
            sheet.warn(f"{name} is not in all environments, so left out of aggregates")
            del found[name]
    short = [cells[0].title(keys) or "no correction" for cells in found.values()]
    is_clear = len({*short}) == len(short)
    return dict(zip(short if is_clear else list(found), found.values(), strict=True))


def improvement(families: Sequence[Family]) -> Drawn:
    """How likely a run of each condition beats one of the freshest condition."""
    sheet, panels = beside(families)
    sheet.shows = "Probability that a run ends with a higher gold win-rate than one of the first"

    def compare(cell: Cell, first: Cell) -> Estimate:
        given = [{"": [*each.scores(WIN_RATE).values()]} for each in (cell, first)]
        return probability_of_improvement(given[0], given[1], options_for_counts())

    against(sheet, families, panels, compare, "probability of improvement")
    for panel in panels:
        panel.axvline(0.5, color=GREY, lw=0.7, ls="--")
    return sheet.drawn()


def differences(families: Sequence[Family]) -> Drawn:
    """Win-rate of each condition less that of the freshest, in pairs of seeds, with the margin."""
    sheet, panels = beside(families)
    sheet.shows = "Gold win-rate of the last version less that of the first condition, by seed"
    verdicts: list[Verdict] = []
    counts = iter(together(pairs_of(families)))

    def compare(cell: Cell, first: Cell) -> Estimate:
        contrast = matched(cell.scores(WIN_RATE), first.scores(WIN_RATE))
        verdicts.append(equivalence(contrast, MARGIN, together=next(counts)))
        return verdicts[-1].difference

    drawn = against(sheet, families, panels, compare, "difference of win-rates")
    for (panel, place, _), row, found in zip(drawn, sheet.rows, verdicts, strict=True):
        row["verdict"] = found.text
        at, word = (
            panel.get_yaxis_transform(),
            f"{found.finding}, {found.difference.basis.options.percent}",
        )
        panel.text(1.02, place, word, transform=at, va="center", fontsize=5.5, color=GREY)
    for panel in panels:
        panel.axvspan(-MARGIN.size, MARGIN.size, color=GREY, alpha=0.15, lw=0)
        panel.axvline(0, color=GREY, lw=0.7)
    sheet.notes.append(
        f"Margin: {MARGIN.text} (shaded), stated before. Each interval is that of two one-sided "
        "tests at 5%, which hold together where the same change is tested with several algorithms "
        "or models (the data have the level of each row). Beside each row what it shows: equal "
        "within the margin, worse or better by more, or neither (not shown)."
    )
    return sheet.drawn()


def pairs_of(families: Sequence[Family]) -> list[Pair]:
    """Each condition with the first of its family, in the order in which rows are drawn."""
    return [
        (cell, first)
        for family in families
        for first in [baseline(family)]
        for cell in family.cells
        if cell is not first
    ]


def against(
    sheet: Sheet,
    families: Sequence[Family],
    axes: Sequence[Axes],
    compare: Callable[[Cell, Cell], Estimate],
    what: str,
) -> list[tuple[Axes, int, Cell]]:
    """A row for each condition but the first, compared with it; returns where each stands."""
    places = []
    for family, (panel,) in in_rows(sheet, families, [[each] for each in axes], ("algo", "model")):
        first, names = baseline(family), names_of(family)
        named = dict(zip(names, family.cells, strict=True))
        ours = next(name for name, cell in named.items() if cell is first)
        rows = [(n, compare(cell, first), cell) for n, cell in named.items() if cell is not first]
        looks = [look_of(cell, keys_of(family)) for _, _, cell in rows]
        interval_rows(sheet, panel, rows, looks, what, first)
        sheet.runs(first)
        # A title begins with its panel, and what is wider than that is cut by the page.
        panel.set_title(fill(f"{sheet.group}, against {ours}", TITLE_LETTERS))
        places += [(panel, place, cell) for place, (_, _, cell) in enumerate(rows)]
        if panel in axes[-2:] if len(axes) >= MANY else panel is axes[-1]:
            panel.set_xlabel(label(what))
    return places
