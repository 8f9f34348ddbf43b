"""One process works in a run's folder at a time, and its record is complete or refused."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs import folder as runs
from rlhf_lab.runs import forkserver, locks, run_directory
from rlhf_lab.runs.folder import CONFIG, MANIFEST
from rlhf_lab.runs.jsonl import JsonlTracker
from rlhf_lab.runs.manifest import read_manifest, state_in
from rlhf_lab.runs.row_digests import EMPTY, Extent, RunningExtent, cut_all, extent_of
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.summaries import list_runs, summary
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.verification import verify_run
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import RecordChanged, UserError
from tests.conftest import Finished, MakeConfig
from tests.support import locking
from tests.support.examples import FACTS
from tests.support.survival import killed_at, outcome, start, wait_until

RUN = (
    "eval=none",
    "run.updates=8",
    "checkpoint.rounds=2",
    "checkpoint.minutes=0",
    "checkpoint.keep=9",
)


@pytest.mark.parametrize("number", [2, 10])
def test_of_many_that_start_at_once_exactly_one_holds_the_folder(
    processes: None, tmp_path: Path, number: int
) -> None:
    gate, folder = tmp_path / "gate", tmp_path / "runs" / "run"
    gate.mkdir()
    started = [
        forkserver.start(locking.start_at_once, (folder, gate, place, number))
        for place in range(number)
    ]
    for process in started:
        process.join()
        assert process.exitcode == 0
    (holder,) = (int(path.name.partition("-")[2]) for path in gate.glob("held-*"))
    refusals = [path.read_text() for path in gate.glob("refused-*")]
    assert len(refusals) == number - 1
    for text in refusals:
        # A holder that has just got the lock may not have written its number yet.
        assert re.search(rf"is in use by process ({started[holder].pid}|\?)", text)
        assert f"output.dir={folder}" in text and "choose another folder" in text


def test_the_kernel_frees_the_lock_of_a_killed_process(processes: None, tmp_path: Path) -> None:
    process = forkserver.start(locking.hold, (tmp_path / "run", tmp_path))
    wait_until((tmp_path / "held").exists)
    with (
        pytest.raises(UserError, match=f"in use by process {process.pid} on "),
        run_directory.run_lock(tmp_path / "run"),
    ):
        pass
    process.kill()
    process.join()
    with run_directory.run_lock(tmp_path / "run"):
        pass


def test_a_requeued_job_waits_for_the_lock_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    with run_directory.run_lock(tmp_path / "run"):
        monkeypatch.setenv("SLURM_JOB_ID", "78")
        with pytest.raises(UserError, match="in use"), run_directory.run_lock(tmp_path / "run"):
            pass
        monkeypatch.setenv("SLURM_JOB_ID", "77")
        answers = iter([False, False, True])
        monkeypatch.setattr(run_directory, "try_lock", lambda _: nullcontext(next(answers)))
        monkeypatch.setattr(run_directory, "POLL_SECONDS", 0.0)
        with run_directory.run_lock(tmp_path / "run"):
            assert list(answers) == []


@pytest.mark.parametrize("number", sorted(locks.UNSUPPORTED))
def test_a_file_system_without_locks_is_refused_with_the_way_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.raises(UserError, match="no locks") as refused,
        run_directory.run_lock(tmp_path / "run"),
    ):
        pass
    assert "RLHF_LAB_LOCKS=off" in str(refused.value)
    monkeypatch.setenv("RLHF_LAB_LOCKS", "off")
    with run_directory.run_lock(tmp_path / "run"), locks.locked(tmp_path / "other"):
        assert locks.is_free(tmp_path / "other")


def test_other_errors_of_a_lock_are_not_taken_for_missing_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output"), run_directory.run_lock(tmp_path / "run"):
        pass


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        refused = pytest.raises(UserError, match=r"output\.dir=.*name another folder")
        with refused, run_directory.run_lock(folder):
            pass


def test_a_start_that_was_killed_before_its_manifest_leaves_a_folder_to_start_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    replace = os.replace
    for written in (CONFIG, MANIFEST):

        def killed(draft: Path, path: Path, last: str = written) -> None:
            if path.name == last:
                raise KeyboardInterrupt
            replace(draft, path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt), run_directory.run_lock(folder):
                RunDirectory.create(folder, {}, "seed: 1\n")
        assert list_runs(tmp_path) == []
    with pytest.raises(UserError, match=r"not empty and not a run \(it holds config.yaml\)"):
        RunDirectory.create(folder, {}, "seed: 2\n")
    for claim in (RunDirectory.resume, RunDirectory.create):
        copy = tmp_path / claim.__name__
        shutil.copytree(folder, copy)
        claim(copy, {}, "seed: 1\n")
        assert (copy / "config.yaml").read_text() == "seed: 1\n"
        assert summary(copy, "run").state == "running"


# --- records ------------------------------------------------------------------------------------


def test_an_extent_is_of_the_bytes_whatever_parts_they_came_in(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    assert extent_of(path) == EMPTY
    path.write_bytes(b"one\ntwo\nth")
    parts = RunningExtent()
    for part in (b"on", b"e\ntwo\nt", b"", b"h"):
        parts.add(part)
    digest = hashlib.sha256(b"one\ntwo\nth").hexdigest()
    assert extent_of(path) == parts.extent() == Extent(2, 10, digest)
    assert extent_of(path, 4) == Extent(1, 4, hashlib.sha256(b"one\n").hexdigest())


def test_a_run_whose_metrics_are_removed_fails_with_its_rows_and_is_resumed(
    make_config: MakeConfig, finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    path, own = folder / "metrics.jsonl", folder / "metrics.jsonl.own"
    config = make_config(*RUN, f"output.dir={folder}", "output.resume=true")
    real = JsonlTracker.log

    def log(tracker: JsonlTracker, metrics: Metrics, step: int) -> None:
        if step == 2:
            path.unlink()
        real(tracker, metrics, step)

    with monkeypatch.context() as patch:
        patch.setattr(JsonlTracker, "log", log)
        with pytest.raises(
            RecordChanged, match=r"metrics\.jsonl was removed .*\.own: move that to"
        ):
            lifecycle.train(config, Console(quiet=True), FACTS)
    assert state_in(read_manifest(folder / "manifest.json")) == "failed"
    assert (folder / "checkpoints" / "00000003").is_dir()
    assert any("it is missing" in line for line in verify_run(folder)[0])
    own.rename(path)
    assert verify_run(folder)[0] == []
    lifecycle.train(config, Console(quiet=True), FACTS)
    assert outcome(folder) == finished(*RUN)
    assert verify_run(folder) == ([], [])


def test_rows_after_the_checkpoint_go_and_missing_ones_are_refused(tmp_path: Path) -> None:
    rows, checkpoint = tmp_path / "rows", tmp_path / "checkpoints" / "00000002"
    rows.write_bytes(b"0\n1\n")
    wanted = {"rows": extent_of(rows), "absent": EMPTY}
    for there, reason in (
        (b"0\n1\n2\n", None),
        (b"0\n1\n", None),
        (b"0\n", "it has 1 of the 2 rows"),
        (b"0\n1", "it has 1 of the 2 rows"),
        (b"", "it has 0 of the 2 rows"),
        (b"1\n0\n", "its first 2 rows are not those"),
        (b"0\n2\n3\n", "its first 2 rows are not those"),
    ):
        rows.write_bytes(there)
        if reason is None:
            cut_all(tmp_path, wanted, checkpoint)
            assert rows.read_bytes() == b"0\n1\n"
        else:
            with pytest.raises(UserError, match=f"{reason} that the checkpoint of round 2"):
                cut_all(tmp_path, wanted, checkpoint)
            assert rows.read_bytes() == there


def test_a_run_is_resumed_with_a_complete_record_or_not_at_all(
    processes: None, make_config: MakeConfig, finished: Finished, tmp_path: Path
) -> None:
    folder, whole = tmp_path / "run", tmp_path / "whole"
    config = make_config(*RUN, f"output.dir={folder}", "output.resume=true")
    killed_at(config, "take", 5)
    shutil.copytree(folder, whole)
    for name, damage in (
        ("metrics.jsonl", lambda path: path.unlink()),
        ("metrics.jsonl", lambda path: path.write_bytes(b"")),
        ("metrics.jsonl", without_second_row),
        ("schedule.jsonl", without_second_row),
        ("timeline.jsonl", lambda path: path.write_bytes(path.read_bytes()[:100])),
    ):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        damage(folder / name)
        with pytest.raises(UserError, match=rf"{name} is not complete: .* of round 4 counts on"):
            lifecycle.train(config, Console(quiet=True), FACTS)
        assert state_in(json.loads((folder / "manifest.json").read_text())) == "failed"
    # The remedy: the rows of the first two rounds are there.
    shutil.rmtree(folder / "checkpoints" / "00000004")
    shutil.copy(whole / "timeline.jsonl", folder)
    with (folder / "metrics.jsonl").open("r+b") as file:
        file.truncate(sum(map(len, file.readlines()[:3])))
    # Two at once: one resumes, the other is refused, and no row is written twice.
    first, second = start(config), start(config)
    for process in (first, second):
        process.join()
    assert 0 in (first.exitcode, second.exitcode)
    steps = [row["step"] for row in runs.metrics(folder)]
    assert steps == list(range(config.run.num_rounds))
    assert outcome(folder) == finished(*RUN)


def without_second_row(path: Path) -> None:
    first, _, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, *others]))
