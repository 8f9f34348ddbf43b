"""Tables in one call, for figures and notebooks: what the command does, without its words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from analysis.sources.filters import Query
from analysis.sources.online import reader
from analysis.sources.record import Reading
from analysis.tables.readers import read_sources
from analysis.tables.table import Tables, make_tables

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Says nothing."""


def read(
    sources: Sequence[str],
    queries: Sequence[Query] = (),
    cache: Path | None = None,
    say: Say = silent,
) -> Reading:
    """Every run of the sources. cache: folder for what wandb's server sent. say: told what asking
    that server took."""
    return read_sources(sources, queries, reader(cache, say))


def gather(
    sources: Sequence[str],
    queries: Sequence[Query] = (),
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    cache: Path | None = None,
) -> Tables:
    """The tables of the runs in the sources that any query holds (all, without one); the metrics
    that the queries name are kept besides those given. Raises UserError if there is none."""
    names = [*metrics, *(name for query in queries for name in query.where.metrics)]
    return make_tables(read(sources, queries, cache), queries, names, by)
