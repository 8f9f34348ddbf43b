"""Read runs and make their tables in one call, as the command does but without printing."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.sources.filters import ALL, Filters
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.table import Tables, make_tables


def gather(sources: Sequence[str], filters: Filters = ALL, metrics: Sequence[str] = ()) -> Tables:
    """The tables of the runs in the sources that the filters choose, with the given metrics (all,
    without any). Raises UserError if no run is chosen."""
    return make_tables(read_sources(sources, filters), filters, metrics)
