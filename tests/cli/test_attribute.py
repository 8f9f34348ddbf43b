"""`rlhf-lab attribute` starts a fork for every change and round, once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlhf_lab.cli.attribute import run_forks
from rlhf_lab.types.errors import UserError


def test_forks_are_started_once_and_refusals_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def run(words: list[str]) -> None:
        if "correction=other" in words:
            raise UserError("no such correction")
        started.append(words)
        folder = Path(next(word for word in words if word.startswith("output.dir="))[11:])
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(json.dumps({"state": "finished"}))

    monkeypatch.setattr(
        "rlhf_lab.cli.attribute.fork", SimpleNamespace(COMMAND=SimpleNamespace(run=run))
    )
    factors = {"lag": ("mode=sync",), "correction": ("correction=other",), "rows 0 to 1": ("x=1",)}
    for _ in range(2):
        done, refused = run_forks(tmp_path / "a", tmp_path / "out", range(3, 5), factors)
        assert refused == {"correction": "no such correction"}
        assert {factor: [path.name for path in paths] for factor, paths in done.items()} == {
            "lag": ["lag-3", "lag-4"],
            "rows 0 to 1": ["rows_0_to_1-3", "rows_0_to_1-4"],
        }
    assert len(started) == 4
    assert started[0] == [
        str(tmp_path / "a"),
        *("round=3", "mode=sync", f"output.dir={tmp_path}/out/lag-3"),
        *("output.resume=true", "output.quiet=true"),
    ]
