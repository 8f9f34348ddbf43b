"""The parts of a sweep, without runs: grids, names, forecasts, the table, locks."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rich.console
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser

from rlhf_lab.runs import forkserver, provenance
from rlhf_lab.runs.locks import is_free, locked, try_lock
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.summaries import RunSummary
from rlhf_lab.sweeps import preview, run_job
from rlhf_lab.sweeps.grid import Grid, grid_of, name_of
from rlhf_lab.sweeps.job import Job, JobTable
from rlhf_lab.sweeps.job_progress import (
    COLUMNS,
    JobProgress,
    JobRow,
    cells,
    chosen,
    counts,
    rendered,
    title,
)
from rlhf_lab.sweeps.override_text import quoted
from rlhf_lab.sweeps.preview import PastRuns, forecast_text, predict_cost, seconds_of, similarity
from rlhf_lab.sweeps.run_job import JobFailed, JobRunner, StopFiles, run
from rlhf_lab.sweeps.sweep_file import (
    SweepRecord,
    check_record,
    from_sweep,
    job_folders,
    read_record,
    write_record,
)
from rlhf_lab.training.stages.cache import cached, lock_file
from rlhf_lab.types.errors import UserError
from tests.support.survival import wait_until

PARSER = OverridesParser.create()


def grid(*texts: str, **params: str) -> Grid:
    return grid_of(params, texts, PARSER)


def test_a_grid_has_all_conditions_of_a_seed_before_the_next_seed() -> None:
    found = grid("seed=1,2", "algo=grpo,rloo", "run.passes=range(1,3)", "task=arithmetic")
    assert found.fixed == ("task=arithmetic",)
    points = list(found.points())
    assert [name_of(point) for point in points[:4]] == [
        "algo-grpo/passes-1/seed-1",
        "algo-grpo/passes-2/seed-1",
        "algo-rloo/passes-1/seed-1",
        "algo-rloo/passes-2/seed-1",
    ]
    assert len(points) == 8 and points[4]["seed"] == "2"


def test_stage_seeds_are_seeds() -> None:
    found = grid("seed=1,2", "stage_seed=5,6", "algo=grpo,rloo")
    assert found.conditions == {"algo": ("grpo", "rloo")}
    assert [name_of(point) for point in found.points()][:3] == [
        "algo-grpo/stage_seed-5/seed-1",
        "algo-rloo/stage_seed-5/seed-1",
        "algo-grpo/stage_seed-5/seed-2",
    ]


def test_overrides_replace_a_sweeps_own_keys_which_stay_swept() -> None:
    found = grid("seed=3", "algo=grpo", seed="1,2", algo="rloo")
    assert found.swept == {"seed": ("3",), "algo": ("grpo",)} and found.fixed == ()
    with pytest.raises(UserError, match="at least one seed"):
        grid(seed="")


def test_names_of_folders_hold_nothing_that_overrides_or_shells_take_apart() -> None:
    named = name_of({"model.path": "a/b c", "+reward.terms": "[x,y]", "model@proxy": "nano_m"})
    assert named == "path-a_bc/terms-x_y/proxy-nano_m"
    alike = {"engine.threads": "1", "eval.threads": "2", "seed": "3"}
    assert name_of(alike) == "engine.threads-1/eval.threads-2/seed-3", "two ends are the same"
    assert name_of({}) == "job"
    with pytest.raises(UserError, match="too long for the name of a folder"):
        name_of({"model.path": "x" * 300})


@pytest.mark.parametrize(
    "value", ["plain/path-1.0", "a=b,c", "it's", "back\\slash", "end\\", "quote\\'s", "[x]", "a b"]
)
def test_quoted_values_are_read_back_as_they_were(value: str) -> None:
    (override,) = PARSER.parse_overrides([f"output.dir={quoted(value)}"])
    assert not override.is_sweep_override()
    assert override.value() == value


def sweep_of(*names: str, base: str = "2:b", content: str = "c") -> SweepRecord:
    jobs = {name: f"{content}-{name}" for name in names}
    return SweepRecord("train", "question", ("a=1",), {"seed": names}, base, "code", jobs, jobs)


def test_a_folder_is_for_one_question(tmp_path: Path) -> None:
    write_record(tmp_path, sweep_of("1", "2"), may_extend=False)
    write_record(tmp_path, sweep_of("1"), may_extend=False)
    assert sorted(read_record(tmp_path)["jobs"]) == ["1", "2"], "a part leaves the whole"
    for other, reason in (
        (sweep_of("1", content="d"), "'1' has other settings"),
        (sweep_of("1", base="2:e"), "with other shared settings"),
        (sweep_of("1", "3"), "without '3'"),
    ):
        with pytest.raises(UserError, match=reason):
            check_record(tmp_path, other, may_extend=False)
    with pytest.raises(UserError, match="holds an older sweep"):
        write_record(tmp_path, sweep_of("3", base="2:e"), may_extend=True)
    write_record(tmp_path, sweep_of("3"), may_extend=True)
    assert sorted(read_record(tmp_path)["folders"]) == ["1", "2", "3"]
    by_another_rule = json.loads((tmp_path / "sweep.json").read_text()) | {"base": "b"}
    (tmp_path / "sweep.json").write_text(json.dumps(by_another_rule))
    check_record(tmp_path, sweep_of("1", content="d"), may_extend=False)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(UserError, match=r"sweep\.json: it is not JSON .* move"):
        read_record(tmp_path)


# --- the forecast -------------------------------------------------------------------------------

SETTINGS = {
    "updates": 4,
    "groups_per_update": 2,
    "updates_per_round": 1,
    "passes": 1,
    "group_size": 2,
    "max_staleness": 0,
    "num_generators": 0,
    "chunk_groups": 2,
    "compares": False,
    "oversample": 1.0,
}
FACTS = {"task": "t", "model": "m", "algo": "a", "mode": "sync"}


def measured_run(folder: Path, **facts: Any) -> None:
    """Four rounds of 3 seconds, 1 to generate and 2 to train; 20 seconds from start to end."""
    folder.mkdir(parents=True)
    manifest = {
        **FACTS,
        "state": "finished",
        "started": "2026-01-01T00:00:00+00:00",
        "ended": "2026-01-01T00:00:20+00:00",
        "settings": SETTINGS,
        **facts,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    rows = []
    for number in range(4):
        begin = 3.0 * number
        for phase, start, end in (
            ("take", 0.0, 1.0),
            ("generate", 0.0, 1.0),
            ("update", 1.0, 3.0),
            ("sync", 3.0, 3.0),
        ):
            times = {"start": begin + start, "end": begin + end}
            chunk = 0 if phase == "generate" else None
            rows.append(
                {"lane": "trainer", "phase": phase, "round": number, "version": number}
                | {"chunk": chunk, **times}
            )
    (folder / "timeline.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def wanted(**settings: Any) -> Job:
    empty = Job("a", (), (), Path(), Path(), Path(), "", (), devices=2)
    return replace(empty, facts=FACTS, settings=SETTINGS | settings)


def test_a_forecast_scales_what_runs_like_the_job_took(tmp_path: Path) -> None:
    measured_run(tmp_path / "like")
    rates = PastRuns(tmp_path)
    same = rates.cost(wanted())
    assert same is not None and same.seconds == pytest.approx(20.0), "12 in rounds and 8 besides"
    double = rates.cost(wanted(updates=8))
    assert double is not None and double.seconds == pytest.approx(32.0)
    wide = rates.cost(wanted(group_size=4))
    assert wide is not None and wide.seconds == pytest.approx(8 + 4 * 6.0), "twice the rows"
    whole = predict_cost([wanted(), wanted(updates=8)], rates)
    assert whole.seconds == pytest.approx(52.0) and whole.device_seconds == pytest.approx(104.0)
    size = sum(path.stat().st_size for path in (tmp_path / "like").iterdir())
    assert (whole.bytes, whole.unknown, whole.sources) == (2 * size, 0, 1)
    assert forecast_text(whole, number=2, side=2).startswith(
        "predicted from 1 measured: 26s with 2 at a time"
    )


def test_a_forecast_prefers_runs_that_are_more_alike_and_says_what_it_does_not_know(
    tmp_path: Path,
) -> None:
    measured_run(tmp_path / "other_algorithm", algo="b")
    measured_run(tmp_path / "other_model", model="l")
    rates = PastRuns(tmp_path)
    found = rates.cost(wanted())
    assert found is not None and found.source == tmp_path / "other_algorithm"
    measured_run(tmp_path / "same", ended="2026-01-01T00:00:30+00:00")
    better = PastRuns(tmp_path).cost(wanted())
    assert better is not None and (better.seconds, better.source) == (30.0, tmp_path / "same")
    stranger = replace(wanted(), facts=FACTS | {"task": "other"})
    partly = predict_cost([wanted(), stranger], rates)
    assert partly.unknown == 1 and "unknown for the other 1" in forecast_text(partly, 2, 1)
    nothing = predict_cost([stranger], rates)
    assert forecast_text(nothing, 1, 1).startswith("time and disk: unknown")
    run = RunSummary("r", tmp_path, "finished", {**FACTS, "algo": "b", "mode": "sync"})
    assert similarity(run, wanted()) == 2, "what comes after a difference does not count"


@pytest.mark.parametrize(
    ("number", "widest", "num_jobs", "told"),
    [
        (1, 1, 4, "n_jobs=4 runs 4 at a time"),
        (1, 1, 2, "n_jobs=2 runs 2 at a time"),
        (2, 2, 9, "2 at a time use 4 of 6 cores: launcher=joblib hydra.launcher.n_jobs=3"),
        (1, 4, 9, ""),
        (1, 8, 9, ""),
        (6, 1, 9, ""),
        (4, 2, 9, "4 jobs of up to 2 cores on 6 cores slow each other down"),
    ],
)
def test_cores_that_jobs_leave_idle_or_lack_are_told(
    monkeypatch: pytest.MonkeyPatch, number: int, widest: int, num_jobs: int, told: str
) -> None:
    monkeypatch.setattr(preview, "usable_cores", lambda: 6)
    lines = preview.core_warnings(number, widest, num_jobs)
    assert [told in line for line in lines] == [True] * bool(told)


def test_seconds_of_a_resumed_run_are_those_since_it_was_resumed() -> None:
    ended = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-02T00:00:10+00:00"}
    again = {"resumed": [{"after": "died", "at": "2026-01-02T00:00:00+00:00"}]}
    assert seconds_of(ended | again) == 10.0


# --- the table ----------------------------------------------------------------------------------


def job(folder: Path, name: str, rounds: int = 4) -> Job:
    place = folder / name
    log, lock = folder / f"{name}.log", folder / f".{name}.lock"
    return Job(name, (), (), place, log, lock, "content", (), rounds)


def written(job_: Job, state: str, steps: int, seconds: float, **facts: Any) -> None:
    """A run of a job that has done so many rounds since it was started."""
    job_.folder.mkdir(parents=True)
    begun = datetime.now(UTC) - timedelta(seconds=seconds)
    manifest: Mapping[str, Any] = {
        "state": state,
        "started": begun.isoformat(),
        "ended": datetime.now(UTC).isoformat(),
        "content": "content",
        "num_rounds": 4,
        **provenance.provenance(),
        **facts,
    }
    (job_.folder / "manifest.json").write_text(json.dumps(manifest))
    rows = [
        {"step": step, "reward/mean": 0.25 * step, "seconds/wall": seconds * (step + 1) / steps}
        for step in range(steps)
    ]
    (job_.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_table_tells_every_job_and_what_is_left(tmp_path: Path) -> None:
    jobs = [job(tmp_path, name) for name in ("done", "going", "failed", "waiting")]
    written(jobs[0], "finished", 4, 40.0)
    written(jobs[1], "running", 2, 20.0)
    written(jobs[2], "failed", 1, 5.0)
    table = JobTable(jobs, at_a_time=1)
    rows = table.read()
    assert [row.state for row in rows] == ["finished", "running", "failed", "new"]
    assert [row.share for row in rows] == [1.0, 0.5, 0.25, 0.0]
    assert counts(rows) == "1 running, 1 failed, 1 finished, 1 queued"
    # A whole job takes 40, 40 and 20 seconds at the pace of the three: half of one, and another.
    assert table.seconds_left(rows) == pytest.approx((40 + 40 + 20) / 3 * 1.5, rel=0.01)
    assert JobTable(jobs, at_a_time=2).seconds_left(rows) == pytest.approx(100 / 3, rel=0.01)
    assert "ETA 12s" in title(rows, 12.0) and "ETA" not in title(rows[:1], 12.0)
    assert title(rows[:1], None) == "1 job: 1 finished"
    drawn = rendered(rows, None, width=100, height=100)
    assert [column.header for column in drawn.columns] == [
        *("job", "state", "round", "ETA", "reward", "took")
    ]
    assert list(drawn.columns[0].cells) == ["done", "going", "failed", "waiting"]
    assert list(drawn.columns[2].cells) == ["4/4", "2/4", "1/4", "0/4"]
    short = rendered(rows, None, width=100, height=10)
    assert list(short.columns[0].cells) == ["done", "going", "failed", "and 1 more"]
    assert JobTable(jobs[3:], 1).seconds_left(rows[3:]) is None, "no round is done"


def test_a_run_whose_process_is_gone_is_no_longer_running_in_the_table(tmp_path: Path) -> None:
    one = job(tmp_path, "one")
    written(one, "running", 1, 1.0, process={"pid": os.getpid(), "born": "1", "job": None})
    assert row_of(one).state == "died"
    (one.folder / "manifest.json").write_text("{")
    assert row_of(one).state == "unreadable", "a table goes on whatever it finds"


def test_where_not_all_jobs_fit_the_screen_running_and_failed_ones_stay() -> None:
    states = ("finished", "running", "new", "failed")
    rows = [JobRow(name, name) for name in states]
    assert [row.name for row in chosen(rows, 2)] == ["running", "failed"]
    assert [row.name for row in chosen(rows, 3)] == ["finished", "running", "failed"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_of_jobs_fit_the_screen_and_fold_no_number(tmp_path: Path, width: int) -> None:
    jobs = [job(tmp_path, f"algo=online_dpo,mode=async,run.updates_per_round={n}") for n in (1, 16)]
    for one in jobs:
        written(one, "running", 2, 20.0)
    screen = io.StringIO()
    console = rich.console.Console(file=screen, width=width)
    console.print(rendered(JobTable(jobs, 1).read(), 30.0, width, 24))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 5 and max(map(len, lines)) <= width
    for line, ending in zip(lines[-2:], ("=1", "=16"), strict=True):
        assert ending in line and "2/4" in line and "0.125" in line


def test_plain_lines_name_changes_at_once_and_running_jobs_in_between(tmp_path: Path) -> None:
    clock = Clock()
    jobs = [job(tmp_path, name) for name in ("a", "b")]
    lines = JobProgress(JobTable(jobs, 1), clock)
    assert lines.lines() == []
    written(jobs[0], "running", 2, 20.0)
    assert lines.lines()[0].startswith("a: running (2 jobs: 1 running, 1 queued, ETA ")
    clock.now = 4.0
    assert lines.lines() == []
    clock.now = 5.0
    summary, line = lines.lines()
    assert summary.startswith("2 jobs: 1 running, 1 queued, ETA ")
    assert line.startswith("  a: ")
    assert lines.lines() == []


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def row_of(one: Job) -> JobRow:
    (row,) = JobTable([one], 1).read()
    return row


def test_a_machine_that_was_started_again_runs_none_of_its_runs() -> None:
    manifest = provenance.provenance()
    assert provenance.is_alive(manifest)
    assert not provenance.is_alive(manifest | {"process": manifest["process"] | {"boot": "other"}})
    older = {name: value for name, value in manifest["process"].items() if name != "boot"}
    assert provenance.is_alive(manifest | {"process": older})


@pytest.mark.usefixtures("processes")
def test_a_job_whose_process_ends_well_before_its_run_does_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job(tmp_path, "one")
    monkeypatch.setattr(run_job, "start_child", lambda *_: forkserver.start(str))
    with pytest.raises(JobFailed, match=r"ended before the job did \(new\)"):
        run(one, StopFiles(tmp_path))
    written(one, "running", 1, 1.0, process={"pid": os.getpid(), "born": "1", "job": None})
    with pytest.raises(JobFailed, match=r"ended before the job did \(died\)"):
        run(one, StopFiles(tmp_path))
    for state in ("paused", "finished"):
        shutil.rmtree(one.folder)
        written(one, state, 1, 1.0)
        run(one, StopFiles(tmp_path))


def test_a_job_that_another_launcher_runs_or_ran_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job(tmp_path, "one")
    number = SimpleNamespace(job=SimpleNamespace(num=0))
    monkeypatch.setattr(HydraConfig, "get", lambda: number)
    runner = JobRunner([one], "code", (), StopFiles(tmp_path))
    with locked(one.lock):
        assert runner(None) == "elsewhere"
    for state, told in (("failed", "elsewhere"), ("finished", "finished")):
        shutil.rmtree(one.folder, ignore_errors=True)
        written(one, state, 1, 1.0)
        assert runner(None) == told


@pytest.mark.usefixtures("processes")
def test_a_job_that_starts_after_its_sweep_ended_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[BaseProcess] = []

    def start(*_: object) -> BaseProcess:
        started.append(forkserver.start(time.sleep, (600,)))
        return started[0]

    monkeypatch.setattr(run_job, "start_child", start)
    with pytest.raises(FileNotFoundError):
        run(job(tmp_path, "one"), StopFiles(tmp_path / "deleted"))
    assert not started[0].is_alive()


def test_a_job_that_makes_products_is_told_by_their_locks_and_its_log(tmp_path: Path) -> None:
    stages = (tmp_path / "sft" / "a", tmp_path / "labels" / "b")
    one = replace(job(tmp_path, "stages of x", rounds=0), stages=stages)
    assert row_of(one).state == "new"
    with locked(lock_file(stages[0])):
        one.log.write_text("sft nano_s: 40/450, 20s gone\n\n")
        row = row_of(one)
        assert (row.state, row.note) == ("running", "sft nano_s: 40/450, 20s gone")
        assert cells(row) == dict.fromkeys(COLUMNS, "") | {"job": one.name, "state": "running"}
    stages[0].mkdir()
    assert row_of(one).state == "new", "half of it is there, and nobody makes the rest"
    stages[1].mkdir(parents=True)
    assert (row_of(one).state, row_of(one).share) == ("finished", 1.0)


def test_a_job_that_makes_products_took_from_its_lock_to_its_last_product(tmp_path: Path) -> None:
    stages = (tmp_path / "sft" / "a", tmp_path / "labels" / "b")
    one = replace(job(tmp_path, "stages of x", rounds=0), stages=stages)
    assert cells(row_of(one))["took"] == ""
    one.lock.touch()
    os.utime(one.lock, (1000.0, 1000.0))
    for number, stage in enumerate(stages):
        stage.mkdir(parents=True)
        entry = stage / "entry.json"
        entry.touch()
        os.utime(entry, (1060.0 + 72 * number,) * 2)
    assert cells(row_of(one))["took"] == "2m12s"
    os.utime(one.lock, (5000.0, 5000.0))
    assert row_of(one).seconds == 0.0, "others had made them before"


def test_jobs_are_found_from_the_sweeps_folder_and_as_they_were_recorded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, apart = tmp_path / "sweep", tmp_path / "apart"
    for run_ in (sweep / "a", apart):
        run_.mkdir(parents=True)
        (run_ / "manifest.json").touch()
    assert from_sweep(apart, sweep) == "../apart"
    monkeypatch.chdir(tmp_path)
    recorded = {"a": "runs/sweep/a", "b": "../apart", "c": "apart", "d": "d", "e": str(apart)}
    found = job_folders(Path("sweep"), {"folders": recorded})
    assert found == {
        **{"a": sweep / "a", "b": apart, "c": apart, "d": sweep / "d", "e": apart},
    }


def test_an_error_is_told_in_one_line_without_its_notes() -> None:
    text = "Traceback (most recent call last):\n  File x\n    raise E\nE: why\na note\n"
    assert error_of({"error": text}) == "E: why"
    assert error_of({}) == "" and error_of({"error": None}) == ""


# --- locks --------------------------------------------------------------------------------------


def hold(path: Path, ready: Path) -> None:
    with locked(path):
        ready.touch()
        time.sleep(600)


@pytest.mark.usefixtures("costly")
def test_a_lock_is_exclusive_and_freed_by_the_death_of_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "below" / "lock"
    assert is_free(path)
    ready = tmp_path / "ready"
    process = forkserver.start(hold, (path, ready))
    wait_until(ready.exists, 300)
    with try_lock(path) as is_ours:
        assert not is_ours
    assert not is_free(path)
    process.kill()
    process.join()
    with try_lock(path) as is_ours:
        assert is_ours
        assert not is_free(path)
    assert is_free(path)


def make_slowly(root: Path, number: int) -> None:
    def make(folder: Path) -> None:
        (root / f"made-by-{number}").touch()
        time.sleep(0.5)
        (folder / "product").write_text("product")

    cached(root, "stage", {"a": 1}, make)


@pytest.mark.usefixtures("costly")
def test_a_stage_that_several_processes_need_is_made_once(tmp_path: Path) -> None:
    processes = [forkserver.start(make_slowly, (tmp_path, n)) for n in range(3)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(list(tmp_path.glob("made-by-*"))) == 1
    folder, was_cached = cached(tmp_path, "stage", {"a": 1}, lambda _: None)
    assert was_cached and (folder / "product").read_text() == "product"
