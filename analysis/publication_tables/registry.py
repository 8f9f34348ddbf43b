"""Every table by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.publication_tables.differences import differences
from rlhf_lab_analysis.publication_tables.entries import PublicationTable
from rlhf_lab_analysis.publication_tables.naming import in_order
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.results import aggregate_results, results
from rlhf_lab_analysis.publication_tables.run_list import run_list
from rlhf_lab_analysis.publication_tables.scales import scales
from rlhf_lab_analysis.publication_tables.settings import settings
from rlhf_lab_analysis.publication_tables.sft import sft
from rlhf_lab_analysis.publication_tables.speed import costs, times
from rlhf_lab_analysis.publication_tables.verdicts import verdicts
from rlhf_lab_analysis.ranges import unique
from rlhf_lab_analysis.shown_runs import left_out_text
from rlhf_lab_analysis.tables.table import Tables

Maker = Callable[[Tables, Selection, TableOptions], list[PublicationTable]]
TABLES: Mapping[str, Maker] = {
    "results": results,
    "aggregates": aggregate_results,
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
    """The tables of a name; none if these runs have nothing to put in it. Raises UserError for an
    unknown name."""
    if name not in TABLES:
        raise UserError(f"--only {name}: pass one of {', '.join(TABLES)}")
    return tables_of(name, tables, selected(tables), options or TableOptions())


def tables_of(
    name: str, tables: Tables, selection: Selection, options: TableOptions
) -> list[PublicationTable]:
    """The same of a selection, with a warning of the runs that do not count."""
    left_out = () if name == "runs" else left_out_text(selection.left_out)
    return [
        replace(table, warnings=unique((*table.warnings, *left_out)))
        for table in TABLES[name](tables, selection, options)
    ]


def selected(tables: Tables) -> Selection:
    """The conditions of the tables, in the order of rows."""
    selection = cells(tables)
    return Selection(in_order(selection.cells), selection.left_out)
