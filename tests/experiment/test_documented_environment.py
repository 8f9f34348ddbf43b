"""The environment that docs/environments.md shows is trained on as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlhf_lab.runs.jsonl import read_rows
from tests.support.examples import call
from tests.support.own_parts import no_plugins, write_plugin

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def test_the_documented_environment_is_trained_on(
    tmp_path: Path, cache: Path, processes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    write_plugin(tmp_path, source, "my_guess")
    run = tmp_path / "run"
    words = ["plugins=[my_guess]", "task=guess", "reward=environment", "algo=grpo"]
    places = [f"output.cache={cache}", f"output.dir={run}", "output.quiet=true"]
    small = ["debug=tiny", "run.group_size=4", "mode=async", "sft.steps=40"]
    with no_plugins("my_guess"):
        assert call("train", *words, *small, *places, monkeypatch=monkeypatch) == 0
    rows = read_rows(run / "metrics.jsonl")
    assert all(row["episode/turns"] > 1 and "episode/missed" in row for row in rows)
