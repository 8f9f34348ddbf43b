"""Warnings about a round's metrics: by hand, and in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.round_warnings import RoundWarnings
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")


def test_a_round_that_is_mostly_left_out_is_reported_once() -> None:
    logged: list[tuple[dict[str, Any], int]] = []
    told: list[str] = []
    log = RoundWarnings(lambda *row: logged.append(row), "icepop", told.append)
    rows = [{"correction/zeroed": share} for share in (0.0, 0.5, 0.75, 1.0)] + [{"other": 1.0}]
    for round_, row in enumerate(rows):
        log(row, round_)
    assert logged == [(row, round_) for round_, row in enumerate(rows)]
    (line,) = told
    assert line.startswith(
        "warning: correction=icepop gave weight 0 to 75% of the tokens of round 2"
    )


def test_a_run_whose_mask_is_narrow_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["debug=tiny", "mode=sync", "eval=none", "algo=proximal_rloo"]
    given += ["correction=geometric_mask", "correction.low=0", "correction.high=1e-9"]
    given += [f"output.cache={tmp_path}/cache", f"output.dir={tmp_path}/run"]
    assert call("train", *given, monkeypatch=monkeypatch) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("correction=geometric_mask gave weight 0 to 100% of the tokens") == 1
