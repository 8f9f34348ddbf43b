"""All figures by name: what each shows, which runs it needs, and the one call that draws it."""

from __future__ import annotations

from collections.abc import Mapping

from analysis.figures import paper
from analysis.figures.entry import Entry, Wants, chosen
from analysis.figures.names import KL, WIN_RATE
from analysis.figures.sheet import Drawn
from analysis.figures.style import on_paper
from analysis.selection import cells
from analysis.tables.table import Tables
from rlhf_lab.types import UserError

N = "updates_per_round"
ENTRIES = (
    Entry(
        "fig3_off_policy_ladder", "win-rate, KL and one against the other by N (paper, figure 3)",
        ("off_policy_ladder",), Wants((N,), (N,), (WIN_RATE, KL)), paper.ladder_of_n,
    ),
)  # fmt: skip
FIGURES: Mapping[str, Entry] = {entry.name: entry for entry in ENTRIES}


def missing(name: str, tables: Tables) -> str:
    """What these runs lack for a figure; empty if it can be drawn."""
    return chosen(entry_of(name), cells(tables))[1]


def drawn(name: str, tables: Tables) -> Drawn:
    """The figure of that name. Raises UserError if its runs are not there, and says which."""
    entry, selection = entry_of(name), cells(tables)
    families, lacking = chosen(entry, selection)
    if lacking:
        raise UserError(f"{name}: {lacking}")
    with on_paper():
        return entry.draw(families)


def entry_of(name: str) -> Entry:
    if name not in FIGURES:
        raise UserError(f"--only {name}: there is no such figure, choose from {', '.join(FIGURES)}")
    return FIGURES[name]
