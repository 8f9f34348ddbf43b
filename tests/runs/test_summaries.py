from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhf_lab.runs.summaries import after_run, after_sweep, print_next
from rlhf_lab.runs.trackers.console import Console


def test_only_commands_that_apply_are_named_with_the_runs_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "my runs" / "one"
    run.mkdir(parents=True)
    manifest = run / "manifest.json"
    manifest.write_text(json.dumps({"state": "finished"}))
    assert [line.split()[1] for line, _ in after_run(run)] == ["report", "runs"]
    (run / "policy").mkdir()
    (run / "timeline.jsonl").touch()
    found = after_run(run)
    assert [line.split()[1] for line, _ in found] == ["report", "timeline", "runs", "export"]
    assert found[0][0] == f"rlhf-lab report '{run}'"
    manifest.write_text(json.dumps({"state": "paused"}))
    assert [line for line, _ in after_run(run)] == [f"rlhf-lab resume '{run}'"]
    print_next(Console(quiet=False, is_terminal=False), after_sweep(tmp_path))
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "Next:" and lines[0].startswith(f"  rlhf-lab report {tmp_path}  ")
