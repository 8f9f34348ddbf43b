"""Read runs and make their tables in one call, as the command does but without printing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rlhf_lab_analysis.sources.filters import Query
from rlhf_lab_analysis.sources.online import reader
from rlhf_lab_analysis.sources.record import Reading
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.table import Tables, make_tables

Report = Callable[[str], None]


def ignore(_: str) -> None:
    """Ignore a message."""


def read(
    sources: Sequence[str],
    queries: Sequence[Query] = (),
    cache: Path | None = None,
    report: Report = ignore,
) -> Reading:
    """Every run of the sources. cache: folder for what wandb's server sent. report: called with a
    line on how many calls that server took."""
    return read_sources(sources, queries, reader(cache, report))


def gather(
    sources: Sequence[str],
    queries: Sequence[Query] = (),
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    cache: Path | None = None,
) -> Tables:
    """The tables of the runs in the sources that any query selects (all, without a query), with the
    given metrics and those that the queries name. Raises UserError if no run is selected."""
    names = [*metrics, *(name for query in queries for name in query.where.metrics)]
    return make_tables(read(sources, queries, cache), queries, names, by)
