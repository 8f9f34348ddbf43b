from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs import folder as runs
from rlhf_lab.runs import provenance
from rlhf_lab.runs.disk import file_digest
from rlhf_lab.runs.run_directory import End, RunDirectory, run_lock
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.types.errors import UserError

FACTS: dict[str, Any] = {
    "command": "train",
    "task": "tldr_nano",
    "algo": "online_dpo",
    "mode": "async",
    "seed": 3,
    "num_rounds": 8,
}


def start(folder: Path) -> RunDirectory:
    return RunDirectory.create(folder, FACTS, "seed: 3\n")


def manifest_of(folder: Path) -> dict[str, Any]:
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    manifest: dict[str, Any] = json.loads(text)
    return manifest


def only(root: Path) -> RunSummary:
    (run,) = list_runs(root)
    return run


def test_a_new_run_writes_down_what_it_is_and_where_it_runs(tmp_path: Path) -> None:
    record = start(tmp_path / "deep" / "run")
    manifest = manifest_of(record.folder)
    assert manifest["state"] == "running"
    assert manifest.items() >= FACTS.items()
    assert manifest["versions"]["python"].startswith(f"3.{sys.version_info.minor}.")
    assert set(provenance.PACKAGES) <= set(manifest["versions"])
    assert manifest["host"]["cores"] >= 1
    assert manifest["host"]["memory_bytes"] > 0
    assert manifest["host"]["cpu"]
    assert manifest["process"]["pid"] == os.getpid()
    assert (record.folder / "config.yaml").read_text(encoding="utf-8") == "seed: 3\n"


def test_the_commit_is_recorded_only_for_code_that_git_tracks(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("", encoding="utf-8")
    assert provenance.commit(source) is None
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "module.py"], [*author, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    clean = provenance.commit(source)
    assert clean is not None and len(clean["commit"]) == 40 and clean["is_dirty"] is False
    source.write_text("changed", encoding="utf-8")
    assert provenance.commit(source) == clean | {"is_dirty": True}


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.commit() is None


@pytest.mark.parametrize("end", ["finished", "failed", "interrupted"])
def test_the_end_is_recorded_in_one_step_with_its_facts(tmp_path: Path, end: End) -> None:
    record = start(tmp_path / "run")
    before = manifest_of(record.folder)
    record.finish(end, error="ValueError: boom")
    after = manifest_of(record.folder)
    facts = {"state": end, "ended": after["ended"], "error": "ValueError: boom"}
    assert after == before | facts | {"digest": after["digest"]}
    assert after["ended"] >= after["started"]
    assert sorted(os.listdir(record.folder)) == ["config.yaml", "manifest.json"]
    assert only(tmp_path).state == end


def test_the_manifest_stays_readable_for_others(tmp_path: Path) -> None:
    record = start(tmp_path / "run")
    path = record.folder / "manifest.json"
    mode = stat.S_IMODE(path.stat().st_mode)
    record.finish("finished")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("end", ["finished", None])
def test_a_folder_with_a_run_is_refused_by_key_value_and_state(
    tmp_path: Path, end: End | None
) -> None:
    folder = tmp_path / "run"
    record = start(folder)
    if end:
        record.finish(end)
    before = manifest_of(folder)
    with pytest.raises(UserError, match="already holds a run") as refusal:
        start(folder)
    assert f"output.dir={folder}" in str(refusal.value)
    assert f"({end or 'running'})" in str(refusal.value)
    assert "choose another folder" in str(refusal.value)
    assert manifest_of(folder) == before


def test_a_folder_with_other_things_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"not empty and not a run \(it holds thesis.tex\)"):
        start(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"output\.dir=.*cannot be created"):
        start(tmp_path / "run")


def test_of_many_that_want_a_folder_exactly_one_gets_it(tmp_path: Path) -> None:
    def attempt(_: int) -> bool:
        try:
            with run_lock(tmp_path / "run"):
                start(tmp_path / "run")
        except UserError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(16))) == 1


def test_new_folders_never_collide_and_are_named_after_the_label(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: runs.new_folder(tmp_path / "runs", "sync"), range(16)))
    assert len(set(made)) == 16
    assert all(folder.is_dir() and folder.name.startswith("sync-20") for folder in made)


def write_rows(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_rows_are_read_in_order(tmp_path: Path) -> None:
    write_rows(tmp_path, "metrics.jsonl", '{"step": 0}\n{"step": 1}\n')
    rows = runs.metrics(tmp_path)
    assert rows == [{"step": 0}, {"step": 1}]
    assert not rows.is_cut


def test_a_run_without_rows_has_none(tmp_path: Path) -> None:
    assert runs.metrics(tmp_path) == runs.evals(tmp_path) == []


@pytest.mark.parametrize("length", range(1, len('{"version": 1}')))
def test_a_last_line_that_a_kill_cut_is_left_out_and_told(tmp_path: Path, length: int) -> None:
    write_rows(tmp_path, "evals.jsonl", '{"version": 0}\n' + '{"version": 1}'[:length])
    rows = runs.evals(tmp_path)
    assert rows == [{"version": 0}]
    assert rows.is_cut


def test_damage_before_the_last_line_is_refused_with_its_place(tmp_path: Path) -> None:
    write_rows(tmp_path, "metrics.jsonl", '{"step": 0}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: it is not JSON"):
        runs.metrics(tmp_path)


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(tmp_path / "file") == known


def test_a_requeued_job_takes_over_its_run_from_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    folder = tmp_path / "run"
    RunDirectory.create(folder, FACTS, "")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["host"]["name"] = "a-node-that-died"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    with pytest.raises(UserError, match=r"process \d+ on a-node-that-died"):
        RunDirectory.resume(folder, FACTS, "")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    record = RunDirectory.resume(folder, FACTS, "")
    assert [end["after"] for end in record.manifest["resumed"]] == ["died"]
    assert record.manifest["run_id"] == manifest["run_id"]
