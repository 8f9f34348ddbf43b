"""`rlhf-lab report` and `rlhf-lab claims` judge the same runs by the same claims."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path

import pytest

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.benchmark import claims as command
from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.store import save
from rlhf_lab_analysis.tables.table import Tables
from tests.support import table_records as made
from tests.support.question_records import Made

pytestmark = pytest.mark.usefixtures("costly")
COUNT = re.compile(r"(cannot tell|does not hold|holds, negligible|holds)[: ]+(\d+)")
HIGH = (0.90, 0.92, 0.94)


def of_report(tables: Tables) -> Counter[str]:
    """How often the page has each verdict, by the line above its questions."""
    (line,) = re.findall(r'<p class="counted">(.*?)</p>', html(tables, Options()), re.DOTALL)
    counted = COUNT.findall(line)
    return Counter({verdict: int(number) for verdict, number in counted if int(number)})


def of_command(source: Path, capsys: pytest.CaptureFixture[str]) -> Counter[str]:
    """How often the command has each verdict, by its last line."""
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    command.run(parser.parse_args([str(source)]), Console(quiet=False))
    _, _, last = " ".join(capsys.readouterr().out.split()).rpartition(" verdicts: ")
    counts = Counter({verdict: int(number) for verdict, number in COUNT.findall(last)})
    assert {*counts} <= {*map(str, Verdict)}
    return counts


def test_page_and_command_have_the_same_rows_of_any_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model with claims of a plan, and one that only questions of any runs are asked of."""
    runs = [
        run
        for model in ("nano_s", "pythia_410m")
        for n, loss in ((1, 0.0), (3, 0.01), (16, 0.1))
        for run in Made(model=model, per_round=n).runs([high - loss * high for high in HIGH])
    ]
    for number, record in enumerate(runs):
        made.write_run(tmp_path / "runs" / str(number), record)
    counts = of_command(tmp_path / "runs", capsys)
    assert counts == of_report(gather([str(tmp_path / "runs")]))
    assert counts.total() >= 10


@pytest.mark.pages
def test_page_and_command_have_the_same_rows_of_the_kept_tables(
    kept_benchmark: Tables, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = kept_benchmark.only(sweep="sync_async_nano", model="nano_s", algo=["ppo", "online_dpo"])
    save(own, tmp_path / "own.parquet")
    counts = of_command(tmp_path / "own.parquet", capsys)
    assert counts == of_report(gather([str(tmp_path / "own.parquet")]))
    assert counts.total() >= 10


def test_a_narrow_terminal_keeps_the_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [*Made().runs(HIGH), *Made(per_round=16).runs([0.9 * high for high in HIGH])]
    for number, record in enumerate(runs):
        made.write_run(tmp_path / "runs" / str(number), record)
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    heads = {}
    for width in (80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        command.run(parser.parse_args([str(tmp_path / "runs")]), Console(False, is_terminal=True))
        lines = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().out).splitlines()
        (head,) = {line.rstrip() for line in lines if line.startswith("claim ")}
        heads[width] = head.split()
    assert heads[200] == command.COLUMNS
    assert heads[80][0] == "claim" and heads[80][-1] == "verdict"
