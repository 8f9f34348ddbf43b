"""Read runs from wandb's server by its own client, which reads page by page and repeats what the
server refuses for the moment.

`scan_history` returns every row of a run, `history` only a sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.filters import ALL, Filters, is_chosen, server_filter
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.history import split_history, wandb_facts
from rlhf_lab_analysis.sources.record import Reading, Record, Source

PER_PAGE = 50


def read_online(text: str, filters: Filters = ALL) -> Reading:
    """The runs of ENTITY/PROJECT that the filters choose; if there is none, the runs of its first
    page without their histories, so that an error message can list their names.

    Raises UserError for any other text, without wandb or its key, and if the server refuses.
    """
    entity, _, project = text.partition("/")
    if not entity or not project or "/" in project:
        raise UserError(f"wandb:{text}: pass wandb:ENTITY/PROJECT")
    with server_errors(text):
        return read_project(client(), entity, project, filters)


def read_project(api: Any, entity: str, project: str, filters: Filters = ALL) -> Reading:
    """The same by a client."""
    path = f"{entity}/{project}"
    wanted = [
        run
        for run in list_runs(api, path, server_filter(filters))
        if is_chosen(make_record(run, entity, project, ()), filters)
    ]
    if not wanted and filters:
        others = islice(list_runs(api, path, {}), PER_PAGE)
        return Reading(tuple(make_record(run, entity, project, ()) for run in others))
    # What wandb itself keeps of a history may be older than the run.
    histories = (list(run.scan_history(use_cache=False)) for run in wanted)
    return Reading(
        tuple(
            make_record(run, entity, project, rows)
            for run, rows in zip(wanted, histories, strict=True)
        )
    )


def client() -> Any:
    """wandb's API client. Raises UserError if wandb is not installed."""
    try:
        import wandb
    except ImportError as error:
        raise UserError("wandb: needs the package wandb: pip install 'rlhf-lab[wandb]'") from error
    return wandb.Api()


@contextmanager
def server_errors(path: str) -> Iterator[None]:
    """Refuse what wandb's client refuses: no key, no such project, no right to read it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        names = {one.__module__.partition(".")[0] for one in type(error).__mro__}
        if not names & {"wandb", "requests"} and "Could not find project" not in str(error):
            raise
        text = " ".join(str(error).split())
        raise UserError(
            f"wandb:{path}: wandb's server refused it ({text}): check entity and project, and what "
            "`wandb login` prints"
        ) from error


def list_runs(api: Any, path: str, filters: Mapping[str, Any]) -> Iterator[Any]:
    """The runs that the server finds, with their configs."""
    return iter(api.runs(path, filters=filters, order="+created_at", per_page=PER_PAGE, lazy=False))


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
