from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.cli.runs import RUNS, in_tree
from rlhf_lab.runs import forkserver
from rlhf_lab.runs.processes import birth
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.summaries import RunSummary, list_runs
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

pytestmark = pytest.mark.usefixtures("costly")

FACTS: dict[str, Any] = {
    "command": "train",
    "task": "tldr_nano",
    "algo": "online_dpo",
    "mode": "async",
    "seed": 3,
    "num_rounds": 8,
}


def start(folder: Path) -> RunDirectory:
    return RunDirectory.create(folder, FACTS, "")


def only(root: Path) -> RunSummary:
    (run,) = list_runs(root)
    return run


def write_rows(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def test_the_list_tells_what_each_run_is_and_how_far_it_came(tmp_path: Path) -> None:
    record = start(tmp_path / "demo" / "async")
    write_rows(record.folder, "metrics.jsonl", '{"step": 0}\n{"step": 1, "reward/mean": 0.75}\n')
    write_rows(record.folder, "evals.jsonl", '{"version": 2, "gold/win_rate": 0.25}\n')
    run = only(tmp_path)
    assert (run.name, run.state, run.rounds, run.problem) == ("demo/async", "running", 2, "")
    assert run.manifest["algo"] == "online_dpo"
    assert run.last == {"step": 1, "reward/mean": 0.75}
    assert run.last_eval == {"version": 2, "gold/win_rate": 0.25}


def test_the_list_skips_hidden_folders_and_finds_the_root_itself(tmp_path: Path) -> None:
    start(tmp_path / ".multirun")
    assert list_runs(tmp_path) == []
    start(tmp_path / "b")
    start(tmp_path / "a")
    assert [run.name for run in list_runs(tmp_path)] == ["a", "b"]
    assert [run.name for run in list_runs(tmp_path / "a")] == ["."]


@pytest.mark.usefixtures("costly")
def test_a_run_whose_process_is_gone_has_died(tmp_path: Path) -> None:
    process = forkserver.start(start, (tmp_path / "run",))
    process.join()
    assert process.exitcode == 0
    assert only(tmp_path).state == "died"


def edit(folder: Path, section: str, **changes: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest[section] |= changes
    write_rows(folder, "manifest.json", json.dumps(manifest))


def test_a_process_that_inherited_the_number_is_not_the_run(tmp_path: Path) -> None:
    folder = start(tmp_path / "run").folder
    if birth(os.getpid()) is None:
        pytest.skip("this system does not tell when a process started")
    edit(folder, "process", born="1")
    assert only(tmp_path).state == "died"


def test_where_births_are_unknown_the_process_number_decides(tmp_path: Path) -> None:
    folder = start(tmp_path / "run").folder
    edit(folder, "process", born=None)
    assert only(tmp_path).state == "running"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    edit(folder, "process", pid=gone.pid)
    assert only(tmp_path).state == "died"


def test_a_run_on_another_host_is_taken_to_live(tmp_path: Path) -> None:
    folder = start(tmp_path / "run").folder
    edit(folder, "process", pid=2**22 + 1, born="1")
    edit(folder, "host", name="elsewhere")
    assert only(tmp_path).state == "running"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"state": "running"}', "\0\0"])
def test_a_damaged_manifest_is_listed_as_unreadable(tmp_path: Path, text: str) -> None:
    start(tmp_path / "good").finish("finished")
    (tmp_path / "bad").mkdir()
    write_rows(tmp_path / "bad", "manifest.json", text)
    bad, good = list_runs(tmp_path)
    assert (bad.state, good.state) == ("unreadable", "finished")
    with pytest.raises(UserError, match=r"already holds a run \(unreadable\)"):
        start(tmp_path / "bad")


def test_damaged_metrics_are_told_in_the_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("broken", '{\n{"step": 1}\n'), ("cut", '{"step": 0}\n{"st')):
        folder = start(tmp_path / name).folder
        write_rows(folder, "metrics.jsonl", text)
    broken, cut = list_runs(tmp_path)
    assert "line 1: it is not JSON" in broken.problem
    assert (cut.rounds, cut.problem) == (1, "the last line of metrics.jsonl was cut")
    RUNS.run([str(tmp_path)], Console(quiet=False, is_terminal=False))
    assert "cut: the last line of metrics.jsonl was cut" in capsys.readouterr().out


def test_the_table_has_a_line_per_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = start(tmp_path / "run")
    row = {"step": 0, "reward/mean": 0.5, "kl/sampled_reference_k1": 3, "seconds/wall": 3660.0}
    write_rows(record.folder, "metrics.jsonl", json.dumps(row) + "\n")
    record.finish("finished")
    assert RUNS.run([str(tmp_path)], Console(quiet=False, is_terminal=False)) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    facts = "run finished DAY TIME 1h01m train tldr_nano online_dpo async 3 1/8 0.500 3.000"
    day, time = line.split()[2:4]
    assert line.split() == facts.replace("DAY", day).replace("TIME", time).split()
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d", f"{day} {time}")


def test_a_root_without_runs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert RUNS.run([str(tmp_path)], Console(quiet=False, is_terminal=False)) == 0
    assert f"no runs in {tmp_path}" in capsys.readouterr().out
    with pytest.raises(UserError, match="is not a folder"):
        RUNS.run([str(tmp_path / "absent")], Console(quiet=True))


def listing(*words: str, capsys: pytest.CaptureFixture[str], is_terminal: bool = False) -> str:
    capsys.readouterr()
    assert RUNS.run(list(words), Console(quiet=False, is_terminal=is_terminal)) == 0
    return capsys.readouterr().out


def several(root: Path) -> None:
    """Runs that began one after the other: b, a, c; b has the highest reward, c has none."""
    for number, (name, reward) in enumerate({"b": 0.75, "a": 0.25, "c": None}.items()):
        record = start(root / name)
        started = f"2026-11-2{number}T00:00:00+00:00"
        manifest = json.loads((record.folder / "manifest.json").read_text())
        text = json.dumps(manifest | {"started": started, "state": "finished"})
        write_rows(record.folder, "manifest.json", text)
        if reward is not None:
            row = {"step": 0, "reward/mean": reward, "seconds/wall": 10.0 - number}
            write_rows(record.folder, "metrics.jsonl", json.dumps(row) + "\n")


def test_runs_are_sorted_and_the_last_ones_are_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several(tmp_path)

    def names(*options: str) -> list[str]:
        found = json.loads(listing(str(tmp_path), "--json", *options, capsys=capsys))
        return [run["run"] for run in found["runs"]]

    assert names() == ["a", "b", "c"]
    assert names("--sort", "started") == ["b", "a", "c"]
    assert names("--sort", "reward") == ["c", "a", "b"]
    assert names("--sort", "wall", "--last", "2") == ["c", "a"]
    for wrong in (["--sort", "colour"], ["--last", "0"], ["--last", "many"]):
        with pytest.raises(UserError, match=r"--(sort|last)"):
            listing(str(tmp_path), *wrong, capsys=capsys)


def test_the_runs_of_several_folders_are_listed_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several(tmp_path / "x")
    several(tmp_path / "y")
    found = json.loads(listing(f"{tmp_path}/x", f"{tmp_path}/y", "--json", capsys=capsys))
    assert [run["run"] for run in found["runs"]][::3] == [f"{tmp_path}/x/a", f"{tmp_path}/y/a"]
    (first, *_) = found["runs"]
    assert first["reward/mean"] == 0.25 and first["gold/win_rate"] is None
    assert first["seed"] == 3 and first["wall_seconds"] == 9.0 and first["error"] is None


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_list_fits_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    name = f"arithmetic-{'x' * 40}-seed1-12"
    record = start(tmp_path / name)
    row = {"step": 0, "reward/mean": -123.456, "kl/sampled_reference_k1": 9876.543}
    write_rows(record.folder, "metrics.jsonl", json.dumps(row | {"seconds/wall": 54321.0}) + "\n")
    write_rows(record.folder, "evals.jsonl", '{"version": 1, "gold/win_rate": 0.947}\n')
    record.finish("interrupted")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", listing(str(tmp_path), capsys=capsys, is_terminal=True))
    lines = plain.splitlines()
    table = lines[1 : next(n for n, line in enumerate(lines) if line.startswith("not shown"))]
    assert all(len(line) <= width for line in table)
    assert "interrupted" in plain and " 1/8" in plain and "0.947" in plain
    assert any(re.search(r"arith\S*…\S*-12", line) for line in table)
    if width >= 80:
        assert "15h05m" in plain and "-123.456" in plain


def test_the_log_of_a_failed_job_is_found_after_its_sweep_was_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = start(tmp_path / "sweep" / "a" / "seed-1")
    record.finish("failed", log="runs/sweep/logs/a/seed-1.log")
    assert "; log runs/sweep/logs/a/seed-1.log" in listing(str(tmp_path), capsys=capsys)
    log = tmp_path / "sweep" / "logs" / "a" / "seed-1.log"
    log.parent.mkdir(parents=True)
    log.touch()
    assert f"; log {log}" in listing(str(tmp_path), capsys=capsys)


def fork_facts(parent: RunDirectory, round_: int, **changes: Any) -> dict[str, Any]:
    return {
        "parent": str(parent.folder),
        "parent_id": parent.manifest["run_id"],
        "round": round_,
        "changes": changes,
    }


def test_forks_stand_below_their_parents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start(tmp_path / "b")
    start(tmp_path / "a")
    changes = {"correction.name": ["none", "split"]}
    facts = {**FACTS, "fork": fork_facts(first, 4, **changes)}
    fork = RunDirectory.create(tmp_path / "c", facts, "")
    RunDirectory.create(tmp_path / "d", {**FACTS, "fork": fork_facts(fork, 6)}, "")
    assert RUNS.run([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line[:5].rstrip() for line in lines[2:6]]
    assert names == ["a", "b", "└ c", "└─ d"]
    assert lines[4].rstrip().endswith("b at round 4: correction.name=split")
    assert lines[5].rstrip().endswith("c at round 6: no change")
    assert RUNS.run([str(tmp_path), "--json"]) == 0
    found = {run["run"]: run["fork"] for run in json.loads(capsys.readouterr().out)["runs"]}
    assert found["a"] is None and found["c"]["changes"] == changes


def test_forks_that_name_each_other_are_listed_too(tmp_path: Path) -> None:
    pair = [start(tmp_path / name) for name in "ab"]
    for one, other in (pair, pair[::-1]):
        one.update(fork=fork_facts(other, 1), started="2026-01-01T00:00:00+00:00")
    assert [(depth, run.name) for depth, run in in_tree(list_runs(tmp_path))] == [
        (0, "a"),
        (0, "b"),
    ]
