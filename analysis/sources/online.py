"""Read runs from wandb's server by its own client: page by page, with a cache and with retries.

`scan_history` returns every row of a run, `history` only a sample. The cache stores a history under
the run's id and the time of its last heartbeat, so that a run that has continued is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.cache import Cache
from rlhf_lab_analysis.sources.filters import Query, Where, select_run, server_filter
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.history import split_history, wandb_facts
from rlhf_lab_analysis.sources.patience import Patience
from rlhf_lab_analysis.sources.record import Reading, Record, Source, joined

PER_PAGE = 50
Report = Callable[[str], None]


@dataclass
class Server:
    """wandb's client, and counts of its calls. runs: how many were read."""

    api: Any
    cache: Cache | None
    patience: Patience = field(default_factory=Patience)
    runs: int = 0
    from_cache: int = 0

    @property
    def line(self) -> str:
        patience = self.patience
        return (
            f"wandb: {self.runs} runs, {self.from_cache} of them from the cache; "
            f"{patience.calls} calls, {patience.repeated} repeated after "
            f"{patience.waited_seconds:.0f}s of waiting"
        )


def reader(cache: Path | None, report: Report) -> Callable[[str, Sequence[Query]], Reading]:
    """A function that reads ENTITY/PROJECT (or, without it, the projects of the filters) and
    reports how many calls that took."""

    def read(text: str, queries: Sequence[Query]) -> Reading:
        named = projects(text, queries)
        server = Server(client(), Cache(cache) if cache else None)
        reading = joined(
            read_project(server, entity, project, wanted)
            for (entity, project), wanted in named.items()
        )
        report(server.line)
        return reading

    return read


def client() -> Any:
    """wandb's API client. Raises UserError if wandb is not installed, or has no key."""
    try:
        import wandb
    except ImportError as error:
        raise UserError("wandb: needs the package wandb: pip install 'rlhf-lab[wandb]'") from error
    try:
        return wandb.Api()
    except wandb.errors.UsageError as error:
        raise UserError(f"wandb: {error}: run `wandb login`") from error


def projects(text: str, queries: Sequence[Query]) -> dict[tuple[str, str], list[Query]]:
    """The queries for each project to read. Raises UserError if no project is named."""
    entity, _, project = text.partition("/")
    if text and (not entity or not project or "/" in project):
        raise UserError(f"wandb:{text}: pass wandb:ENTITY/PROJECT")
    found: dict[tuple[str, str], list[Query]] = {}
    for query in queries:
        where = query.where
        if is_in_project(where, entity, project):
            name = (entity or where.entity, project or where.project)
            found.setdefault(name, []).append(query)
    if text and not queries:
        found[entity, project] = []
    if not found or not all(part for name in found for part in name):
        raise UserError(
            f"wandb:{text}: no project is named: pass wandb:ENTITY/PROJECT, or --filters "
            "'?we=ENTITY&wpn=PROJECT'"
        )
    return found


def is_in_project(where: Where, entity: str, project: str) -> bool:
    """Whether a group of filters can select runs of this entity and project ("" is any)."""
    return all(not b or a in ("", b) for a, b in ((where.entity, entity), (where.project, project)))


def read_project(server: Server, entity: str, project: str, queries: Sequence[Query]) -> Reading:
    """The runs of a project that the queries select; if there is none, the runs of its first page
    without their histories, so that an error message can list their names. Raises UserError if
    the project does not exist."""
    each = [server_filter(query) for query in queries]
    filters = {"$or": each} if each and all(each) else {}
    listed = list(list_runs(server, f"{entity}/{project}", filters))
    wanted = [run for run in listed if select_run(make_record(run, entity, project, ()), queries)]
    if not wanted and queries:
        others = islice(list_runs(server, f"{entity}/{project}", {}), PER_PAGE)
        return Reading(tuple(make_record(run, entity, project, ()) for run in others))
    return Reading(tuple(record_of(server, run, entity, project) for run in wanted))


def list_runs(server: Server, path: str, filters: Mapping[str, Any]) -> Iterator[Any]:
    """The runs that the server finds, page by page, with their configs."""
    options = {"order": "+created_at", "per_page": PER_PAGE, "lazy": False}
    runs = server.api.runs(path, filters=dict(filters), **options)
    place = 0
    while (run := run_at(runs, place, path, server.patience)) is not None:
        yield run
        place += 1


def run_at(runs: Any, place: int, path: str, patience: Patience) -> Any:
    """The run at a place of a paged list, None behind its end. (Iterating would skip a run where a
    page had to be requested twice.)"""

    def ask() -> Any:
        try:
            return runs[place]
        except IndexError:
            return None

    try:
        return patience(ask, f"the runs of {path}")
    except ValueError as error:
        if isinstance(error, UserError) or "Could not find project" not in str(error):
            raise
        raise UserError(f"wandb:{path}: {error}: check entity and project") from error


def record_of(server: Server, run: Any, entity: str, project: str) -> Record:
    """Read one run, from the cache if it has not continued since it was stored there."""
    server.runs += 1
    cache = server.cache
    key, stamp = (entity, project, str(run.id)), f"{run.state} {heartbeat(run)}"
    rows = cache.get(key, stamp) if cache else None
    if rows is not None:
        server.from_cache += 1
    else:
        rows = server.patience(
            lambda: list(run.scan_history(use_cache=False)), f"the history of {run.id}"
        )
        if cache:
            cache.put(key, stamp, rows)
    return make_record(run, entity, project, rows)


def heartbeat(run: Any) -> str:
    """The time of a run's last heartbeat; when it was created, if it has none."""
    return str(getattr(run, "heartbeat_at", None) or getattr(run, "created_at", ""))


def make_record(run: Any, entity: str, project: str, rows: Sequence[Mapping[str, Any]]) -> Record:
    """A run and its history as a record."""
    config = {name: value for name, value in dict(run.config).items() if not name.startswith("_")}
    rounds, evals = split_history(rows)
    known = wandb_facts(
        config,
        rounds or evals,
        state=str(run.state),
        name=str(run.name or ""),
        project=f"{entity}/{project}",
        user=str(getattr(getattr(run, "user", None), "username", "") or ""),
        job_type=str(getattr(run, "job_type", "") or "train"),
        tags=tuple(run.tags or ()),
        commit=str(getattr(run, "commit", "") or "")[:8],
        started=str(getattr(run, "created_at", "") or ""),
    )
    findings = () if rows else (
        Finding(Kind.missing_metric, str(run.id), str(run.url), "it has no history"),
    )  # fmt: skip
    return Record(Source.wandb, str(run.id), str(run.url), known, config, rounds, evals, findings)
