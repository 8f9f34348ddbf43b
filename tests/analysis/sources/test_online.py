"""Runs of wandb's server, by a made-up client: test_wandb_files.py has wandb's own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.cache import Cache
from rlhf_lab_analysis.sources.filter_text import parse_query
from rlhf_lab_analysis.sources.online import PER_PAGE, Server, projects, read_project, run_at
from rlhf_lab_analysis.sources.patience import ATTEMPTS, Patience
from rlhf_lab_analysis.tables.table import make_tables
from tests.support.table_records import tables

pytestmark = pytest.mark.usefixtures("costly")


class Busy(Exception):
    """What wandb raises where its server refuses."""

    def __init__(self, status: int, wait: str = "") -> None:
        headers = {"Retry-After": wait} if wait else {}
        self.response = SimpleNamespace(status_code=status, headers=headers)


class Run(SimpleNamespace):
    """A run as wandb's client has it. scans: how often its history was read."""

    scans = 0

    def scan_history(self, use_cache: bool) -> Iterator[dict[str, Any]]:
        assert not use_cache, "what wandb itself keeps may be older than the run"
        self.scans += 1
        yield from self.rows

    def history(self, **_: Any) -> None:
        raise AssertionError("a sample of the history")


def a_run(number: int, **changes: Any) -> Run:
    rows = [{"_step": n, "_runtime": 1.5 * n, "loss": n / 7} for n in range(3)]
    own: dict[str, Any] = {
        "id": f"r{number}",
        "name": f"Run {number}",
        "state": "finished",
        "rows": rows,
    }
    own |= {"url": f"https://host/me/p/runs/r{number}", "tags": ["a"], "job_type": None}
    own |= {"config": {"seed": number, "env_id": "E", "exp_name": "x", "_wandb": {}}}
    own |= {"heartbeat_at": "noon", "user": SimpleNamespace(username="me"), "commit": "0" * 40}
    return Run(**{**own, **changes})


class Pages:
    """A paged list that refuses to go on, once, before some of its places."""

    def __init__(self, runs: list[Run], refused: dict[int, Exception]) -> None:
        self.runs, self.refused = runs, refused

    def __getitem__(self, place: int) -> Run:
        if place in self.refused:
            raise self.refused.pop(place)
        return self.runs[place]


class Api:
    """A client. asked: the arguments of the calls for runs."""

    def __init__(self, runs: list[Run], refused: dict[int, Exception] | None = None) -> None:
        self.pages, self.asked = Pages(runs, refused or {}), list[dict[str, Any]]()

    def runs(self, path: str, **options: Any) -> Pages:
        self.asked.append({"path": path, **options})
        return self.pages


def server(api: Api, cache: Path | None = None) -> Server:
    naps: list[float] = []
    return Server(api, Cache(cache) if cache else None, Patience(naps.append))


def test_a_projects_runs_are_read_with_their_whole_history() -> None:
    api = Api([a_run(1), a_run(2)])
    asked = server(api)
    reading = read_project(asked, "me", "p", [])
    assert api.asked == [
        {"path": "me/p", "filters": {}, "order": "+created_at", "per_page": PER_PAGE, "lazy": False}
    ]
    made = tables(*reading.records)
    assert made.overview == "2 runs, 1 condition, 2 seeds (1, 2)"
    assert made.points["loss"].tolist() == [n / 7 for n in range(3)] * 2
    assert made.points["x/wall_seconds"].tolist() == [0, 1.5, 3] * 2
    assert made.points["x/step"].tolist() == [0, 1, 2] * 2
    assert made.runs["place"].tolist()[0] == "https://host/me/p/runs/r1"
    assert (asked.runs, asked.patience.calls, asked.patience.repeated) == (2, 5, 0)


def test_what_was_read_is_kept_until_the_run_goes_on(tmp_path: Path) -> None:
    runs = [a_run(1), a_run(2)]
    first, again = server(Api(runs), tmp_path), server(Api(runs), tmp_path)
    kept = [read_project(one, "me", "p", []).records for one in (first, again)]
    assert (first.from_cache, again.from_cache) == (0, 2)
    assert [run.scans for run in runs] == [1, 1]
    assert kept[0] == kept[1]
    runs[1].heartbeat_at = "later"
    runs[1].rows = [*runs[1].rows, {"_step": 3, "loss": 1}]
    runs[0].state = "crashed"
    (_, longer) = read_project(server(Api(runs), tmp_path), "me", "p", []).records
    assert [run.scans for run in runs] == [2, 2], "a run that ended otherwise is read again too"
    assert len(longer.rounds) == 4
    # The same id in another project is another run.
    read_project(server(Api(runs), tmp_path), "me", "other", [])
    assert [run.scans for run in runs] == [3, 3]


def test_the_cache_keeps_rows_exactly(tmp_path: Path) -> None:
    cache, key = Cache(tmp_path / "new"), ("me", "p", "../<a b>")
    rows: list[dict[str, Any]] = [
        {"a": 1, "n:b": 0.1, "c": "text"},
        {"a": 2.5, "c": 3, "d": math.nan},
        {},
    ]
    cache.put(key, "noon", rows)
    found = cache.get(key, "noon")
    assert found is not None and math.isnan(float(found[1].pop("d")))  # type: ignore[attr-defined]
    assert found == [{"a": 1, "n:b": 0.1, "c": "text"}, {"a": 2.5, "c": 3}, {}]
    assert cache.get(key, "later") is None and cache.get(("me", "p", "b"), "noon") is None
    assert [path.parent for path in tmp_path.rglob("*.parquet")] == [tmp_path / "new"]
    assert cache.path(("a", "b_c")) != cache.path(("a_b", "c"))


def test_a_busy_server_is_asked_again_and_it_is_counted() -> None:
    naps: list[float] = []
    patience = Patience(naps.append)
    errors = [Busy(429), Busy(503, wait="7"), ConnectionError("reset")]

    def ask() -> str:
        if errors:
            raise errors.pop(0)
        return "answer"

    assert patience(ask, "it") == "answer"
    assert naps == [1.0, 7.0, 4.0], "twice as long each time, or as long as it asks for"
    assert (patience.calls, patience.repeated, patience.waited_seconds) == (4, 3, 12.0)


def test_a_server_that_stays_busy_is_left_alone_in_the_end() -> None:
    naps: list[float] = []

    def ask() -> str:
        raise Busy(429)

    with pytest.raises(UserError, match=f"refused the runs of me/p {ATTEMPTS} times"):
        Patience(naps.append)(ask, "the runs of me/p")
    assert naps == [1, 2, 4, 8, 16]


def test_other_errors_are_not_tried_again() -> None:
    naps: list[float] = []

    def ask(error: Exception) -> str:
        raise error

    with pytest.raises(UserError, match=r"runs of me/p \(status 403: .* check entity"):
        Patience(naps.append)(lambda: ask(Busy(403)), "the runs of me/p")
    with pytest.raises(KeyError):
        Patience(naps.append)(lambda: ask(KeyError("a bug")), "it")
    assert naps == []


def test_a_page_that_is_refused_once_leaves_no_run_out() -> None:
    wrapped = RuntimeError("wandb's own words")
    wrapped.__cause__ = Busy(429)
    api = Api([a_run(n) for n in range(5)], refused={0: Busy(500), 3: wrapped, 5: Busy(429)})
    asked = server(api)
    assert [run.run for run in read_project(asked, "me", "p", []).records] == [
        f"r{n}" for n in range(5)
    ]
    assert asked.patience.repeated == 3


def test_a_project_that_is_not_there_is_refused() -> None:
    api = Api([], refused={0: ValueError("Could not find project p")})
    with pytest.raises(UserError, match=r"wandb:me/p: Could not find project p: check entity"):
        run_at(api.pages, 0, "me/p", Patience())


def test_a_run_without_history_is_told() -> None:
    (made,) = read_project(server(Api([a_run(1, rows=[])])), "me", "p", []).records
    assert [finding.what for finding in made.findings] == ["it has no history"]


def test_which_projects_are_asked_for_what() -> None:
    ours = parse_query(["?we=me&wpn=p", "x"])
    other, anywhere = parse_query(["?we=you&wpn=q"]), parse_query(["?"])
    assert projects("", [ours, other]) == {("me", "p"): [ours], ("you", "q"): [other]}
    assert projects("me/p", []) == {("me", "p"): []}
    assert projects("me/p", [ours, other, anywhere]) == {("me", "p"): [ours, anywhere]}
    for text, queries in (("me", []), ("a/b/c", []), ("", []), ("", [anywhere]), ("me/z", [ours])):
        with pytest.raises(UserError, match="wandb:"):
            projects(text, queries)


def test_filters_go_to_the_server_too() -> None:
    api = Api([a_run(1), a_run(2)])
    query = parse_query(["?we=me&wpn=p", "x?seed=1&tag=a&tag=b&user=me"], ["E"])
    read_project(server(api), "me", "p", [query])
    experiment = [{"tags": {"$in": ["a"]}}, {"tags": {"$in": ["b"]}}, {"config.exp_name": "x"}]
    experiment += [{"username": "me"}, {"config.seed": {"$in": [1]}}]
    wanted = [{"config.env_id": {"$in": ["E"]}}, {"$or": [{"$and": experiment}]}]
    assert api.asked[0]["filters"] == {"$or": [{"$and": wanted}]}


def test_only_the_histories_of_chosen_runs_are_read_and_else_what_there_is_told() -> None:
    """A server may know filters in another way: what it finds is filtered here."""
    runs = [a_run(1), a_run(2)]
    one = parse_query(["?", "x?seed=2"])
    assert [r.run for r in read_project(server(Api(runs)), "me", "p", [one]).records] == ["r2"]
    assert [run.scans for run in runs] == [0, 1]
    api, none = Api(runs), parse_query(["?we=me&wpn=p", "grpo"])
    reading = read_project(server(api), "me", "p", [none])
    assert api.asked[1]["filters"] == {} and runs[0].scans == 0
    with pytest.raises(UserError, match=r"no run of 2 matches '[?]we=me&wpn=p' 'grpo'") as refused:
        make_tables(reading, [none])
    assert "\n  projects: me/p\n" in str(refused.value)
    assert "\n  exp_name: x\n  seed: 1, 2\n  tags: a\n" in str(refused.value)
