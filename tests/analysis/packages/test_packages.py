"""`--with PACKAGE`: rliable and Open RL Benchmark compute what we compute."""

from __future__ import annotations

import argparse
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
from rlhf_lab_analysis.packages.by_open_rl_benchmark import PACKAGE, by_open_rl_benchmark
from rlhf_lab_analysis.packages.by_rliable import THEIRS, by_rliable
from rlhf_lab_analysis.plots import paper_command
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


def test_the_numbers_of_rliable_are_ours(tmp_path: Path) -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]
    table, plot = by_rliable(cells(made()), WIN_RATE, tmp_path)
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]
    found = pd.read_csv(table)
    assert found["aggregate"].tolist() == [*THEIRS] * 2
    assert found["rliable"].tolist() == pytest.approx(found["ours"].tolist(), abs=1e-12)
    # Two bootstraps of 2,000 draws; draws of an IQM of five scores lie 0.01 and less apart.
    for end in ("low", "high"):
        theirs, ours = (found[f"{name}_{end}"].tolist() for name in ("rliable", "ours"))
        assert theirs == pytest.approx(ours, abs=0.0101)
    assert plot.suffix == ".png" and plot.stat().st_size > 1000


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
    for suffix in (".png", ".pdf", ".svg"):
        Path(f"{out}{suffix}").touch()
    return subprocess.CompletedProcess(words, 0, "", "")


@pytest.mark.parametrize("is_real", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_means_of_rlops_are_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_real: bool
) -> None:
    if not is_real:
        monkeypatch.setattr(subprocess, "run", rlops_by_hand)
    written = by_open_rl_benchmark(runs(), WIN_RATE, tmp_path)
    assert {".csv", ".png", ".pdf", ".svg"} <= {path.suffix for path in written}
    (table,) = (path for path in written if path.suffix == ".csv")
    ends = {"lagged": [0.52, 0.54, 0.56, 0.58, 0.6], "sync": [0.53, 0.56, 0.59, 0.62, 0.65]}
    for row in pd.read_csv(table).to_dict("records"):
        held = ends["sync" if "sync" in str(row["condition"]) else "lagged"]
        assert row["openrlbenchmark"] == f"{np.mean(held):.2f} ± {np.std(held):.2f}"
        assert row["ours"] == pytest.approx(np.mean(held))
        assert row["seeds"] == 5


def test_what_cannot_be_computed_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="--with rliable: no sweep has two conditions"):
        by_rliable(cells(tables(*runs()[:1])), WIN_RATE, tmp_path)
    with pytest.raises(UserError, match="--with openrlbenchmark: no run has none"):
        by_open_rl_benchmark(runs(), "none", tmp_path)
    monkeypatch.setattr(paper_command, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"not installed: pip install 'rlhf-lab\[analysis\]'"):
        command("runs", "--with", "rliable")


def test_rlops_that_fails_is_told_by_its_last_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 1, "", "Traceback\nKeyError: 'a'\n")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(UserError, match=r"rlops ended with code 1: KeyError: 'a'"):
        by_open_rl_benchmark(runs(), WIN_RATE, tmp_path)


def command(*words: str) -> None:
    parser = argparse.ArgumentParser()
    paper_command.add_options(parser)
    paper_command.run(parser.parse_args(words), Console(quiet=True))


def test_figures_have_their_tables_beside(tmp_path: Path) -> None:
    for one in runs():
        write_run(tmp_path / "runs" / one.run, one)
    out = tmp_path / "out"
    command(str(tmp_path / "runs"), "--out", str(out), "--formats", "svg", "--with", "rliable")
    assert "rliable_low" in (out / "rliable_runs.csv").read_text()
