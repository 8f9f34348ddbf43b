"""All figures by name, and the call that draws one of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.families import Family
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.figures import (
    against_first,
    aggregate_bars,
    frontier,
    fronts,
    paper,
    questions,
    scaling,
    staleness_rate,
    targets,
)
from rlhf_lab_analysis.figures.declaration import DECLARED, FigureSpec
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure, FigureBuilder
from rlhf_lab_analysis.figures.requirement import Choice, choose
from rlhf_lab_analysis.figures.style import on_paper
from rlhf_lab_analysis.shown_runs import left_out_text
from rlhf_lab_analysis.tables.table import Tables
from rlhf_lab_analysis.words import KL

# Inches of a page's height, without its margins and caption.
PAGE = 9.2
# Modules whose functions are declared as figures, in the order in which they are listed.
SOURCES = (
    paper,
    questions,
    aggregate_bars,
    against_first,
    frontier,
    fronts,
    targets,
    scaling,
    staleness_rate,
)
FIGURES: Mapping[str, FigureSpec] = {
    name: spec
    for source in SOURCES
    for name, spec in DECLARED.items()
    if spec.draw.__module__ == source.__name__
}


def missing(name: str, selection: Selection, drift: str = KL) -> str:
    """What these runs lack for a figure; empty if it can be drawn."""
    return choice_of(spec_of(name).by(drift), selection).missing


def best_of(name: str, selections: Sequence[Selection]) -> Selection | None:
    """The first of these that has runs of the figure's own sweeps, else the first that allows it;
    None if none does."""
    spec = spec_of(name)
    choices = [(choice_of(spec, one), one) for one in selections]
    allowed = [(choice, one) for choice, one in choices if not choice.missing]
    own = [one for choice, one in allowed if choice.is_own]
    return own[0] if own else allowed[0][1] if allowed else None


def draw(name: str, tables: Tables) -> DrawnFigure:
    """Draw the figure of that name. Raises UserError, which names its runs, if they are missing."""
    return draw_selection(name, cells(tables))


def draw_selection(name: str, selection: Selection) -> DrawnFigure:
    """The same of a selection, for several figures of one."""
    spec = spec_of(name)
    choice = choice_of(spec, selection)
    if choice.missing:
        raise UserError(f"{name}: {choice.missing}")
    with on_paper():
        return with_left_out(spec.draw(choice.families).build(spec.caption), choice)


def draw_pages(name: str, selection: Selection, drift: str = KL) -> list[DrawnFigure]:
    """The figure on as many pages as its rows of panels take. drift: the measure on its axes of
    drift."""
    spec = spec_of(name).by(drift)
    choice = choice_of(spec, selection)
    if choice.missing:
        raise UserError(f"{name}: {choice.missing}")
    with on_paper():
        return [
            with_left_out(one.build(spec.caption), choice) for one in paged(spec, choice.families)
        ]


def paged(spec: FigureSpec, families: Sequence[Family]) -> list[FigureBuilder]:
    """The drawing of all families, or those of some each where it is higher than a page, or where
    the figure has a page for each sweep."""
    groups: dict[Hashable, list[Family]] = {}
    for family in families:
        key = spec.page_of(family) if spec.page_of else None
        groups.setdefault(key, []).append(family)
    if len(groups) == 1:
        return fitting(spec, families, families)
    return [page for group in groups.values() for page in fitting(spec, group, families)]


def fitting(
    spec: FigureSpec, families: Sequence[Family], every: Sequence[Family]
) -> list[FigureBuilder]:
    """The drawing of these families, on several pages where it is higher than one. every: those of
    all pages, by which they are named."""
    each = families
    if len(every) > len(families):
        each = [replace(family, among=tuple(every)) for family in families]
    whole = spec.draw(each)
    fit = max(1, int(len(each) * PAGE / whole.figure.get_figheight()))
    if fit >= len(each):
        return [whole]
    each = [replace(family, among=tuple(every)) for family in families]
    starts = range(0, len(each), fit)
    return [page for start in starts for page in in_pages(spec, each[start : start + fit])]


def in_pages(spec: FigureSpec, families: Sequence[Family]) -> list[FigureBuilder]:
    """The drawing of these families, or of each alone where they are higher than a page."""
    drawn = spec.draw(families)
    if len(families) == 1 or drawn.figure.get_figheight() <= PAGE:
        return [drawn]
    return [spec.draw([family]) for family in families]


def page_name(name: str, page: int) -> str:
    """The name of a page of a figure: `pareto`, `pareto_2`."""
    return name if page == 0 else f"{name}_{page + 1}"


def with_left_out(figure: DrawnFigure, choice: Choice) -> DrawnFigure:
    """The same, with what does not count among its warnings and counted in its caption."""
    caption = " ".join([figure.caption, *(f"{text}." for text in left_out_text(choice.left_out))])
    return replace(figure, caption=caption, warnings=(*figure.warnings, *choice.left_out))


def choice_of(spec: FigureSpec, selection: Selection) -> Choice:
    return choose(spec.needs, spec.sweeps, selection, spec.beside)


def spec_of(name: str) -> FigureSpec:
    """Raises UserError if there is no such figure."""
    if name not in FIGURES:
        raise UserError(f"--only {name}: there is no such figure, choose from {', '.join(FIGURES)}")
    return FIGURES[name]
