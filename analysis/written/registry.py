"""Every table by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analysis.comparison.selection import Selection, cells
from analysis.tables.table import Tables
from analysis.written.asked import Asked
from analysis.written.differences import differences
from analysis.written.entries import Written
from analysis.written.naming import in_order
from analysis.written.results import aggregated, results
from analysis.written.run_list import run_list
from analysis.written.scales import scales
from analysis.written.settings import settings
from analysis.written.sft import sft
from analysis.written.speed import costs, times
from analysis.written.verdicts import verdicts
from rlhf_lab.types.errors import UserError

Maker = Callable[[Tables, Selection, Asked], list[Written]]
TABLES: Mapping[str, Maker] = {
    "results": results,
    "aggregates": aggregated,
    "differences": differences,
    "costs": costs,
    "times": times,
    "sft": sft,
    "settings": settings,
    "scales": scales,
    "verdicts": verdicts,
    "runs": run_list,
}


def written(name: str, tables: Tables, asked: Asked | None = None) -> list[Written]:
    """The tables of a name; none if these runs have nothing to put in it. Raises UserError for a
    name that there is not."""
    if name not in TABLES:
        raise UserError(f"--only {name}: pass one of {', '.join(TABLES)}")
    return TABLES[name](tables, selected(tables), asked or Asked())


def selected(tables: Tables) -> Selection:
    """The conditions of the tables, in the order of rows."""
    found = cells(tables)
    return Selection(in_order(found.cells), found.left_out)
