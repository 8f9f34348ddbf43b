"""Every table by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from analysis.comparison.selection import Selection, cells
from analysis.publication_tables.differences import differences
from analysis.publication_tables.entries import PublicationTable
from analysis.publication_tables.naming import in_order
from analysis.publication_tables.options import TableOptions
from analysis.publication_tables.results import aggregated, results
from analysis.publication_tables.run_list import run_list
from analysis.publication_tables.scales import scales
from analysis.publication_tables.settings import settings
from analysis.publication_tables.sft import sft
from analysis.publication_tables.speed import costs, times
from analysis.publication_tables.verdicts import verdicts
from analysis.tables.table import Tables
from rlhf_lab.types.errors import UserError

Maker = Callable[[Tables, Selection, TableOptions], list[PublicationTable]]
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


def make_tables(
    name: str, tables: Tables, options: TableOptions | None = None
) -> list[PublicationTable]:
    """The tables of a name; none if these runs have nothing to put in it. Raises UserError for a
    name that there is not."""
    if name not in TABLES:
        raise UserError(f"--only {name}: pass one of {', '.join(TABLES)}")
    return TABLES[name](tables, selected(tables), options or TableOptions())


def selected(tables: Tables) -> Selection:
    """The conditions of the tables, in the order of rows."""
    found = cells(tables)
    return Selection(in_order(found.cells), found.left_out)
