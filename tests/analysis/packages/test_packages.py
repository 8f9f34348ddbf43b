"""`--with PACKAGE`: rliable and Open RL Benchmark compute what we compute."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import numpy as np
import pandas as pd
import pytest

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.packages import beside as beside_module
from rlhf_lab_analysis.packages.beside import Beside
from rlhf_lab_analysis.packages.by_open_rl_benchmark import DRAWN, PACKAGE, by_open_rl_benchmark
from rlhf_lab_analysis.packages.by_rliable import THEIRS, by_rliable
from rlhf_lab_analysis.packages.option import beside
from rlhf_lab_analysis.report.command import add_options, run
from rlhf_lab_analysis.sources.open_rl_benchmark import read_benchmark
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.table import Tables
from tests.support.table_records import config, evals, record, tables, write_run

pytestmark = pytest.mark.usefixtures("costly")

WIN_RATE = "gold/win_rate"


def runs() -> list[Record]:
    """Two conditions with five seeds each, judged twice."""
    found = []
    for mode in ("sync", "lagged"):
        for seed in range(1, 6):
            last = {WIN_RATE: 0.5 + seed / 50 + (mode == "sync") * seed / 100}
            rows = [*evals((0,)), *evals((4,), last)]
            name = f"{mode}{seed}"
            found.append(record(name, seed, config=config(seed, mode), evals=rows))
    return found


def made() -> Tables:
    return tables(*runs())


@pytest.fixture(scope="module")
def compared() -> Beside:
    """Their numbers beside ours, without plots."""
    (one,) = by_rliable(cells(made()), WIN_RATE, None)
    return one


def test_the_numbers_of_rliable_are_ours(tmp_path: Path, compared: Beside) -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    (one,) = by_rliable(cells(made()), WIN_RATE, tmp_path)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]
    assert one.data["aggregate"].tolist() == [*THEIRS] * 2
    assert one.data["rliable"].tolist() == pytest.approx(one.data["ours"].tolist(), abs=1e-12)
    # Two bootstraps of 2,000 draws; draws of an IQM of five scores lie 0.01 and less apart.
    for end in ("low", "high"):
        theirs, ours = (one.data[f"{name}_{end}"].tolist() for name in ("rliable", "ours"))
        assert theirs == pytest.approx(ours, abs=0.0101)
    assert compared.data.equals(one.data) and compared.drawn == ()
    assert [path.name for path in one.drawn] == [f"{one.name}.png"]
    assert one.drawn[0].stat().st_size > 1000


def rlops_by_hand(
    words: list[str], cwd: Path, env: dict[str, str], **options: Any
) -> subprocess.CompletedProcess[str]:
    """A process that writes what rlops does: mean and deviation of the last version by filter."""
    given = dict(pairwise(words))
    where, *filters = words[words.index("--filters") + 1 : words.index("--env-ids")]
    assert parse_qs(where.removeprefix("?"))["metric"] == [WIN_RATE]
    assert given["--metric-last-n-average-window"] == "1"
    assert env["PYTHONPATH"].split(os.pathsep)[0] == str(cwd)
    held: dict[str, list[float]] = {}
    for one in read_benchmark(cwd / PACKAGE / "dataset").records:
        end = float(one.evals[-1][WIN_RATE])
        held.setdefault(str(one.config["condition"]), []).append(end)
    row = {"": given["--env-ids"]}
    for text in filters:
        name, _, legend = text.partition("?cl=")
        row[unquote_plus(legend)] = f"{np.mean(held[name]):.2f} ± {np.std(held[name]):.2f}"
    out = given["--output-filename"]
    pd.DataFrame([row]).to_csv(f"{out}.csv", index=False)
    for suffix in DRAWN:
        Path(f"{out}{suffix}").touch()
    return subprocess.CompletedProcess(words, 0, "", "")


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_means_of_rlops_are_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_real: bool
) -> None:
    if not is_real:
        monkeypatch.setattr(subprocess, "run", rlops_by_hand)
    (one,) = by_open_rl_benchmark(runs(), WIN_RATE, tmp_path)
    ends = {"lagged": [0.52, 0.54, 0.56, 0.58, 0.6], "sync": [0.53, 0.56, 0.59, 0.62, 0.65]}
    for row in one.data.to_dict("records"):
        held = ends["sync" if "sync" in str(row["condition"]) else "lagged"]
        assert row["openrlbenchmark"] == f"{np.mean(held):.2f} ± {np.std(held):.2f}"
        assert row["ours"] == pytest.approx(np.mean(held))
        assert row["seeds"] == 5
    assert {path.suffix for path in one.drawn} == {".png", ".pdf", ".svg"}


def test_what_cannot_be_computed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = cells(tables(*runs()[:1]))
    with pytest.raises(UserError, match="--with rliable: no sweep has two conditions"):
        list(beside(["rliable"], alone, [], WIN_RATE))
    with pytest.raises(UserError, match="--with openrlbenchmark: no run has none"):
        list(beside(["openrlbenchmark"], alone, runs(), "none"))
    monkeypatch.setattr(beside_module, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"not installed: pip install 'rlhf-lab\[analysis\]'"):
        list(beside(["rliable"], alone, [], WIN_RATE))


def test_rlops_that_fails_is_told_by_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 1, "", "Traceback\nKeyError: 'a'\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(UserError, match=r"rlops ended with code 1: KeyError: 'a'"):
        by_open_rl_benchmark(runs(), WIN_RATE, None)


def test_a_report_has_their_tables(tmp_path: Path, compared: Beside) -> None:
    import argparse

    for one in runs():
        write_run(tmp_path / "runs" / one.run, one)
    parser = argparse.ArgumentParser()
    add_options(parser)
    page = tmp_path / "page.html"
    given = [str(tmp_path / "runs"), "--out", str(page), "--with", "rliable"]
    run(parser.parse_args(given), Console(quiet=True))
    text = page.read_text(encoding="utf-8")
    assert "By other packages" in text and "rliable_low" in text
    assert all(f"<td>{row[2]}</td>" in text for row in compared.rows)
