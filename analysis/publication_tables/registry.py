"""Every table by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.publication_tables.conditions import Conditions
from rlhf_lab_analysis.publication_tables.differences import differences
from rlhf_lab_analysis.publication_tables.formats import PublicationTable, check_heads
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.results import results, sft
from rlhf_lab_analysis.publication_tables.run_list import run_list
from rlhf_lab_analysis.publication_tables.settings import settings
from rlhf_lab_analysis.tables.table import Tables

TABLES: Mapping[str, Callable[[Tables, Conditions, TableOptions], list[PublicationTable]]] = {
    "results": results,
    "differences": differences,
    "sft": sft,
    "settings": settings,
    "runs": run_list,
}


def make_tables(
    names: str | Sequence[str], tables: Tables, options: TableOptions | None = None
) -> list[PublicationTable]:
    """The tables of these names, as the style has them; none of a name for which these runs have
    nothing. Raises UserError for an unknown name, and for what the style names that is not
    there."""
    options, wanted = options or TableOptions(), [names] if isinstance(names, str) else names
    if unknown := [name for name in wanted if name not in TABLES]:
        raise UserError(f"--only {unknown[0]}: pass one of {', '.join(TABLES)}")
    conditions = Conditions(cells(tables), options.style)
    made = []
    for name in wanted:
        for table in TABLES[name](tables, conditions, options):
            left_out = () if name == "runs" else conditions.left_out
            made.append(replace(table, notes=(*table.notes, *left_out)))
    check_heads(options.style, made)
    return [table.styled(options.style) for table in made]
