"""One search for folders of runs: links are followed, and what cannot be read is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.runs.walk import find, is_run, walk
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.tables.readers import kinds_of, read_sources
from tests.support.table_records import record, write_run


def names(root: Path) -> list[str]:
    return [f"{run.name}: {run.state}" for run in list_runs(root)]


def test_linked_runs_are_read_once_and_under_their_own_path(tmp_path: Path) -> None:
    write_run(tmp_path / "disk/a", record("a"))
    write_run(tmp_path / "runs/z/b", record("b"))
    (tmp_path / "runs/first").symlink_to(tmp_path / "disk/a")
    (tmp_path / "runs/again").symlink_to(tmp_path / "runs/z")
    (tmp_path / "runs/z/up").symlink_to(tmp_path)
    (tmp_path / "runs/z/loop").symlink_to(".")
    (tmp_path / "runs/.hidden").symlink_to(tmp_path / "disk/a")
    assert names(tmp_path / "runs") == ["first: finished", "z/b: finished"]
    reading = read_sources([str(tmp_path / "runs")])
    assert sorted(one.run for one in reading.records) == ["a", "b"] and reading.findings == ()
    (tmp_path / "paper").symlink_to(tmp_path / "runs")
    assert names(tmp_path / "paper") == names(tmp_path / "runs")


def test_a_folder_that_cannot_be_read_and_a_link_to_nowhere_are_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "closed/b"):
        write_run(tmp_path / "runs" / name, record(name))
    (tmp_path / "runs/moved").symlink_to(tmp_path / "other-disk/moved")
    scandir = os.scandir

    def closed(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert names(tmp_path / "runs") == ["a: finished", "closed: unreadable", "moved: unreadable"]
    reading = read_sources([str(tmp_path / "runs")])
    assert [one.run for one in reading.records] == ["a"]
    assert {(one.kind, Path(one.place).name) for one in reading.findings} == {
        (Kind.damaged, "closed"),
        (Kind.damaged, "moved"),
    }
    with pytest.raises(Unreadable, match="closed: it cannot be read"):
        kinds_of(tmp_path / "runs/closed")


def test_one_file_that_cannot_be_read_leaves_the_others_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote = {"records": {"metrics.jsonl": {"rows": 4, "size": 9, "sha256": "0"}}}
    for name in ("a", "b"):
        write_run(tmp_path / name, record(name), **wrote)
    plain, read_bytes = Path.open, Path.read_bytes

    def refuse(call: Any) -> Any:
        def refused(path: Path, *given: Any, **named: Any) -> Any:
            if path == tmp_path / "b/metrics.jsonl":
                raise PermissionError(13, "Permission denied", str(path))
            return call(path, *given, **named)

        return refused

    monkeypatch.setattr(Path, "open", refuse(plain))
    monkeypatch.setattr(Path, "read_bytes", refuse(read_bytes))
    first, second = read_sources([str(tmp_path)]).records
    assert len(first.rounds) == 4 and len(second.rounds) == 0 and len(second.evals) == 2
    assert any("it cannot be read (Permission denied)" in one.what for one in second.findings)


def test_a_run_without_its_manifest_is_a_damaged_run_and_its_mirror_is_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", record("a"))
    (folder / "manifest.json").unlink()
    (folder / "tensorboard").mkdir()
    (folder / "tensorboard/events.out.tfevents.1").touch()
    assert names(tmp_path) == ["a: unreadable"]
    reading = read_sources([str(tmp_path)])
    assert reading.records == () and [one.kind for one in reading.findings] == [Kind.damaged]


def test_files_are_found_in_runs_too_and_hidden_ones_are_not(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", record("a"))
    for name in ("t.csv", ".making-1-t.csv"):
        (folder / name).touch()
    problems: list[Unreadable] = []
    assert find(tmp_path, lambda path: path.suffix == ".csv", problems) == [folder / "t.csv"]
    assert problems == [] and [is_run(files) for _, files in walk(tmp_path, [])] == [False, True]
