"""Draw conditions against the freshest one: differences of win-rates with verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rlhf_lab_analysis.comparison.cell import Cell, with_common_seeds
from rlhf_lab_analysis.comparison.claims import Pair, count_together
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.comparison.registry.looks import family_text, looks_of
from rlhf_lab_analysis.figures.declaration import figure
from rlhf_lab_analysis.figures.figure_builder import FigureBuilder
from rlhf_lab_analysis.figures.grouping import baseline, by_algo, keys_of, names_of
from rlhf_lab_analysis.figures.interval_rows import interval_rows
from rlhf_lab_analysis.figures.panels import in_rows
from rlhf_lab_analysis.figures.requirement import any_two
from rlhf_lab_analysis.figures.series_style import GREY
from rlhf_lab_analysis.figures.style import DOUBLE, SINGLE, page
from rlhf_lab_analysis.statistics.contrasts import matched
from rlhf_lab_analysis.statistics.equivalence import EquivalenceTest, equivalence, points
from rlhf_lab_analysis.statistics.results import Estimate
from rlhf_lab_analysis.words import WIN_RATE, in_words, label

# Inches of a row of an interval, and of what is around the rows.
LINE, TITLED = 0.16, 0.48
# Families from which on they are in two columns; ticks that have room in one.
MANY, FEW_TICKS = 4, 4
# Of a row's name, from which on it leaves a panel no room in half a page; of a title there.
LONG, TITLE_LETTERS = 26, 38
MARGIN = points(2)


@figure(
    "differences",
    "win-rate less that of the freshest condition, in pairs of seeds, against a margin",
    "Gold win-rate of the last version less that of the first condition, by seed",
    any_two(WIN_RATE, grouping=by_algo),
    page_of=lambda family: family.first.sweep,
)
def differences(families: Sequence[Family]) -> FigureBuilder:
    verdicts: list[EquivalenceTest] = []
    pairs: list[Pair] = [
        (cell, first)
        for family in families
        for first in [baseline(family)]
        for cell in family.cells
        if cell is not first
    ]
    families_ = list(zip(count_together(pairs), looks_of(pairs), strict=True))
    at_once = iter(together * looks for together, looks in families_)

    def compare(cell: Cell, first: Cell) -> Estimate:
        contrast = matched(*(one.scores(WIN_RATE) for one in with_common_seeds(cell, first)))
        verdicts.append(equivalence(contrast, MARGIN, together=next(at_once)))
        return verdicts[-1].difference

    builder, panels = beside(families)
    drawn = against_first(builder, families, panels, compare, "difference of win-rates")
    for (panel, row), data, verdict, family in zip(
        drawn, builder.rows, verdicts, families_, strict=True
    ):
        data["verdict"], data["family"] = verdict.text, family_text(*family)
        text = f"{verdict.finding}, {verdict.difference.basis.options.percent}"
        text += f" ({'x'.join(str(number) for number in family if number > 1) or 1})"
        at = panel.get_yaxis_transform()
        panel.text(1.02, row, text, transform=at, va="center", fontsize=5.5, color=GREY)
    for panel in panels:
        panel.axvspan(-MARGIN.size, MARGIN.size, color=GREY, alpha=0.15, lw=0)
        panel.axvline(0, color=GREY, lw=0.7)
    builder.notes.append(
        f"Margin: {MARGIN.text} (shaded), stated before. Each interval is that of two one-sided "
        "tests at 5%, which hold together where the same change is tested with several algorithms "
        "or models, and share the 5% among the looks of a claim about it. Beside each row what it "
        "shows: equal within the margin, worse or better by more, or neither (not shown); the "
        "level of its interval; and in parentheses how many comparisons hold together, times "
        "looks."
    )
    return builder


def beside(families: Sequence[Family]) -> tuple[FigureBuilder, list[Axes]]:
    """One panel for each family, as high as its rows need; in two columns if they are many, and
    across the page if names of rows are long. All have the same scale."""
    names = [in_words(name) for family in families for name in names_of(family)]
    is_wide = max(map(len, names)) > LONG
    columns = 1 if is_wide or len(families) < MANY else 2
    lines = [len(family.cells) - 1 for family in families]
    starts = range(0, len(lines), columns)
    heights = [TITLED + LINE * max(lines[start : start + columns]) for start in starts]
    width = DOUBLE if is_wide or columns == 2 else SINGLE
    figure_, axes = page(len(heights), columns, width, heights, sharex="all")
    panels = axes.flat[: len(families)].tolist()
    for empty in axes.flat[len(families) :]:
        empty.remove()
    # The last panel of each column, below which there is none.
    for panel in panels[-columns:]:
        panel.tick_params(labelbottom=True)
    for panel in panels:
        panel.xaxis.set_major_locator(MaxNLocator(FEW_TICKS))
    return FigureBuilder(figure_), panels


def against_first(
    builder: FigureBuilder,
    families: Sequence[Family],
    axes: Sequence[Axes],
    compare: Callable[[Cell, Cell], Estimate],
    metric: str,
) -> list[tuple[Axes, int]]:
    """A row for each condition but the first, compared with it; returns where each row is."""
    drawn = []
    panels = [[each] for each in axes]
    for family, (panel,) in in_rows(builder, families, panels, ("algo", "model")):
        first, named = baseline(family), dict(zip(names_of(family), family.cells, strict=True))
        ours = next(name for name, cell in named.items() if cell is first)
        rows = [(n, compare(cell, first), cell) for n, cell in named.items() if cell is not first]
        interval_rows(builder, panel, rows, keys_of(family), metric, first)
        builder.count_runs(first)
        # A title begins with its panel, and what is wider than that is cut by the page.
        title = f"{in_words(builder.group)}, against {in_words(ours)}"
        panel.set_title(fill(title, TITLE_LETTERS))
        drawn += [(panel, row) for row in range(len(rows))]
        if panel.xaxis.get_tick_params()["labelbottom"]:
            panel.set_xlabel(label(metric))
    return drawn
