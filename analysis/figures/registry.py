"""All figures by name: what each shows, which runs it needs, and the one call that draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from analysis.comparison.selection import Selection, cells
from analysis.figures.entry import Choice, Entry, chosen
from analysis.figures.of_library import OF_LIBRARY
from analysis.figures.of_paper import OF_PAPER
from analysis.figures.of_sweeps import OF_SWEEPS
from analysis.figures.sheet import Drawn
from analysis.figures.style import on_paper
from analysis.tables.table import Tables
from rlhf_lab.types.errors import UserError

FIGURES: Mapping[str, Entry] = {entry.name: entry for entry in (*OF_PAPER, *OF_SWEEPS, *OF_LIBRARY)}


def missing(name: str, selection: Selection) -> str:
    """What these runs lack for a figure; empty if it can be drawn."""
    return chosen(entry_of(name), selection).missing


def drawn(name: str, tables: Tables) -> Drawn:
    """The figure of that name. Raises UserError if its runs are not there, and says which."""
    return drawn_of(name, cells(tables))


def drawn_of(name: str, selection: Selection) -> Drawn:
    """The same of a selection, for several figures of one."""
    entry = entry_of(name)
    choice = chosen(entry, selection)
    if choice.missing:
        raise UserError(f"{name}: {choice.missing}")
    with on_paper():
        return told(entry.draw(choice.families), choice)


def told(made: Drawn, choice: Choice) -> Drawn:
    """The same, with the runs that do not count among its warnings and counted in its caption."""
    if not choice.left_out:
        return made
    words = f"{len(choice.left_out)} left out: {'; '.join(reasons(choice.left_out))}."
    return replace(
        made, caption=f"{made.caption} {words}", warnings=(*made.warnings, *choice.left_out)
    )


def reasons(lines: Sequence[str], most: int = 3) -> list[str]:
    """The first few of them, and how many more there are."""
    shown = [line.removeprefix("left out: ") for line in lines[:most]]
    return [*shown, *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


def entry_of(name: str) -> Entry:
    """Raises UserError if there is no such figure."""
    if name not in FIGURES:
        raise UserError(f"--only {name}: there is no such figure, choose from {', '.join(FIGURES)}")
    return FIGURES[name]
