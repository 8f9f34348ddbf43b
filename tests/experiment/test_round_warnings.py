"""Warnings about a round's metrics: by hand, and in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.run.round_warnings import RoundWarnings
from tests.conftest import MakeConfig
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")


@pytest.mark.parametrize(
    ("metric", "shares", "first", "key"),
    [
        ("correction/zeroed", (0.0, 0.5, 0.75, 1.0), 2, "correction="),
        ("sample/empty_rate", (0.0, 0.2, 0.21, 1.0), 2, "task.chat=true"),
        ("sample/eos_rate", (1.0, 0.9, 0.7, 0.0), 2, "task.max_response_tokens="),
        ("update/adapters_kept", (1.0, 0.99, 0.98, 0.0), 2, "generator.dtype=float32"),
    ],
)
def test_what_is_probably_a_mistake_is_reported_once(
    config_of: MakeConfig, metric: str, shares: tuple[float, ...], first: int, key: str
) -> None:
    logged: list[tuple[dict[str, Any], int]] = []
    lines: list[str] = []
    config = config_of("task=prompts", "task.path=x.jsonl", "task.chat=false", "reward=task_rule")
    log = RoundWarnings(lambda *row: logged.append(row), config, lines.append)
    rows = [*({metric: share} for share in shares), {"other": 1.0}]
    for round_, row in enumerate(rows):
        log(row, round_)
    assert logged == [(row, round_) for round_, row in enumerate(rows)]
    (line,) = lines
    assert f"round {first}" in line and metric in line and key in line


def test_a_run_whose_mask_is_narrow_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["debug=tiny", "mode=sync", "eval=none", "algo=proximal_rloo"]
    given += ["correction=geometric_mask", "correction.low=0", "correction.high=1e-9"]
    given += [f"output.cache={tmp_path}/cache", f"output.dir={tmp_path}/run"]
    assert call("train", *given, monkeypatch=monkeypatch) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("correction=geometric_mask gave weight 0 to 100% of the tokens") == 1
