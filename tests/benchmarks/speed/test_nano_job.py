"""The clock of a job's parts by hand, and that the parts are where the table looks for them."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.speed import job_parts, nano_job
from benchmarks.speed.job_parts import PARTS, REST, TOTAL, Stopwatch
from rlhf_lab.types.errors import UserError


class Clock:
    """Shows what it is set to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_seconds_of_a_part_are_those_outside_of_the_parts_within() -> None:
    clock = Clock()
    watch = Stopwatch(clock)

    class Work:
        def inner(self) -> None:
            clock.now += 5

        def outer(self) -> str:
            clock.now += 1
            self.inner()
            clock.now += 2
            return "done"

    work = Work()
    watch.watch("outer", Work, "outer")
    watch.watch(" / inner", Work, "inner")
    clock.now = 10
    assert work.outer() == "done"
    clock.now += 7
    work.inner()
    assert watch.stop() == {"outer": 3, "outer / inner": 5, REST: 17, "rest / inner": 5}


def test_a_part_that_fails_is_closed() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    with pytest.raises(KeyError), watch.part("one"):
        clock.now = 2
        raise KeyError
    clock.now = 5
    assert watch.stop() == {REST: 3, "one": 2}


def test_every_part_is_a_function_of_the_package() -> None:
    for _, module, path in PARTS:
        owner = import_module(module)
        for name in path.split("."):
            owner = getattr(owner, name)
        assert callable(owner)


def test_a_table_of_jobs_by_hand() -> None:
    jobs = [{TOTAL: 10.0, "a": 4.0, "b": 6.0}, {TOTAL: 20.0, "a": 16.0}, {TOTAL: 12.0, "a": 5.0}]
    table = nano_job.table_of(jobs)
    assert table.title == "a nano job: 300 in an hour of a core"
    assert table.rows == [
        [TOTAL, "12.00 [10.00, 20.00]", "100%"],
        ["a", "5.00 [4.00, 16.00]", "42%"],
        ["b", "0.00 [0.00, 6.00]", "0%"],
    ]


def test_a_job_writes_its_seconds_and_a_failing_one_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["debug=tiny", "run.updates=1", "reward=task_rule", f"output.cache={cache}"]
    monkeypatch.setattr(nano_job, "JOB", ("train", "output.quiet=true"))
    found = nano_job.seconds_of_job(words, tmp_path)
    assert {"config", "training", "training / update", TOTAL} <= set(found)
    assert json.loads((tmp_path / "parts.json").read_text(encoding="utf-8")) == found
    with pytest.raises(UserError, match=r"code 2.*no_such=1"):
        nano_job.seconds_of_job([*words, "no_such=1"], tmp_path)


def test_a_code_that_is_not_zero_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_parts, "PARTS", ())
    with pytest.raises(SystemExit, match="2"):
        job_parts.run_job(["no-such-command"], tmp_path / "parts.json")
    assert not (tmp_path / "parts.json").exists()
