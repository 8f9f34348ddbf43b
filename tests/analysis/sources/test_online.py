"""Runs of wandb's server, by a made-up client, and by wandb's own against a server of ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.filters import parse_filters, server_filter
from rlhf_lab_analysis.sources.online import PER_PAGE, read_online, read_project
from rlhf_lab_analysis.tables.table import make_tables
from tests.support import prepared
from tests.support.table_records import tables
from tests.support.wandb_project import serving

pytestmark = pytest.mark.usefixtures("costly")


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
    own |= {"user": SimpleNamespace(username="me"), "commit": "0" * 40}
    return Run(**{**own, **changes})


class Api:
    """A client. asked: the arguments of the calls for runs."""

    def __init__(self, runs: list[Run]) -> None:
        self.held, self.asked = runs, list[dict[str, Any]]()

    def runs(self, path: str, **options: Any) -> list[Run]:
        self.asked.append({"path": path, **options})
        return self.held


def test_a_projects_runs_are_read_with_their_whole_history() -> None:
    api = Api([a_run(1), a_run(2)])
    reading = read_project(api, "me", "p")
    assert api.asked == [
        {"path": "me/p", "filters": {}, "order": "+created_at", "per_page": PER_PAGE, "lazy": False}
    ]
    made = tables(*reading.records)
    assert made.overview == "2 runs, 1 condition, 2 seeds (1, 2)"
    assert made.points["loss"].tolist() == [n / 7 for n in range(3)] * 2
    assert made.points["x/wall_seconds"].tolist() == [0, 1.5, 3] * 2
    assert made.points["x/step"].tolist() == [0, 1, 2] * 2
    assert made.runs["place"].tolist()[0] == "https://host/me/p/runs/r1"


def test_a_run_without_history_has_a_finding() -> None:
    (made,) = read_project(Api([a_run(1, rows=[])]), "me", "p").records
    assert [finding.what for finding in made.findings] == ["it has no history"]


@pytest.mark.parametrize("text", ["", "me", "a/b/c", "/p", "me/"])
def test_a_source_that_names_no_project_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="pass wandb:ENTITY/PROJECT"):
        read_online(text)


def test_filters_go_to_the_server_too() -> None:
    filters = parse_filters(["env_id=E", "seed=1", "seed=2", "tag=a"])
    api = Api([a_run(1), a_run(2)])
    read_project(api, "me", "p", filters)
    wanted: list[dict[str, Any]] = [
        {"config.env_id": {"$in": ["E"]}},
        {"config.seed": {"$in": [1, 2]}},
        {"tags": {"$in": ["a"]}},
    ]
    assert api.asked[0]["filters"] == {"$and": wanted}
    assert server_filter({}) == {}


def test_histories_of_chosen_runs_alone_are_read_and_an_error_lists_what_there_is() -> None:
    """A server may know filters in another way: what it finds is filtered here."""
    runs = [a_run(1), a_run(2)]
    two = parse_filters(["exp_name=x", "seed=2"])
    assert [one.run for one in read_project(Api(runs), "me", "p", two).records] == ["r2"]
    assert [run.scans for run in runs] == [0, 1]
    api, none = Api(runs), parse_filters(["exp_name=grpo"])
    reading = read_project(api, "me", "p", none)
    assert api.asked[1]["filters"] == {} and runs[0].scans == 0
    with pytest.raises(UserError, match="no run of 2 has exp_name=grpo") as refused:
        make_tables(reading, none)
    assert "\n  projects: me/p\n" in str(refused.value)
    assert "\n  exp_name: x\n  seed: 1, 2\n  tags: a\n" in str(refused.value)


# wandb's own client.

READ = """
import sys
import rlhf_lab_analysis.sources.online as online
from rlhf_lab_analysis.tables.__main__ import main
online.PER_PAGE = 2
code = main(sys.argv[1:])
import wandb
wandb.teardown()
sys.exit(code)
"""


def by_wandb(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process, with wandb's client asking a server of ours."""
    names = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
    own = {name: str(folder / name) for name in names}
    own |= {"WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40}
    return prepared.run(READ, *arguments, modules=prepared.WANDB, folder=folder, surroundings=own)


@pytest.mark.parametrize("project", ["p", "q"])
def test_what_the_server_refuses_for_good_is_refused_in_one_line(
    tmp_path: Path, project: str
) -> None:
    with serving("p", []) as held:
        if project == "p":
            held.busy, held.status = 1000, 403
        done = by_wandb(tmp_path, held.url, f"wandb:me/{project}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"tables: wandb:me/{project}: wandb's server refused it (")
    assert "check entity and project" in done.stderr and done.stderr.count("\n") == 1


def test_wandbs_own_client_reads_pages_histories_and_waits_for_a_busy_server(
    tmp_path: Path,
) -> None:
    def node(number: int) -> dict[str, Any]:
        told = {"updates": 3, "updates_per_round": 1, "passes": 1}
        rows: list[dict[str, Any]] = [
            {"_step": n, "_runtime": n, "total/rounds": n + 1, "deep": {"a": n}} for n in range(3)
        ]
        rows += [{"_step": 3, "version": 3, "eval/prompts": 8, "gold/win_rate": number / 8}]
        config = {"seed": number, "env_id": "E", "exp_name": "x", "run": told}
        own = {"name": f"r{number}", "displayName": f"R{number}", "state": "finished"}
        return {**own, "heartbeatAt": "2026", "tags": ["t"], "config": config, "history": rows}

    out = tmp_path / "t.csv"
    asked = ["wandb:me/p", "--where", "seed=1", "--where", "seed=2", "--where", "tag=t"]
    with serving("p", [node(n) for n in range(3)]) as project:
        project.busy = 1
        done = by_wandb(tmp_path, project.url, *asked, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "2 runs, 1 condition, 2 seeds (1, 2)" in done.stdout
    assert "no findings" in done.stdout
    # Two pages, of which one was refused first, and the histories of the chosen runs alone.
    assert (project.refused, project.count("Runs"), project.count("HistoryPage")) == (1, 2, 2)
    values = next(values for name, values in project.asked if name == "Runs")
    assert json.loads(values["filters"])["$and"], "the server is given the filters"
    lines = (tmp_path / "t.versions.csv").read_text().splitlines()
    head = lines[0].split(",")
    rates = [line.split(",")[head.index("gold/win_rate")] for line in lines[1:]]
    assert rates == ["0.125", "0.25"]
