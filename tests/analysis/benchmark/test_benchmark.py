"""The tracked benchmark: what is kept of runs, and the page that is made of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rlhf_lab_analysis.benchmark.__main__ import main
from rlhf_lab_analysis.benchmark.kept import TABLES, load_benchmark
from rlhf_lab_analysis.comparison.questions.every_question import answers
from rlhf_lab_analysis.publication_tables.escapes import markdown
from rlhf_lab_analysis.statistics.decisions import NO_WIDTH
from rlhf_lab_analysis.tables.store import files
from tests.support import table_records as made
from tests.support.question_records import Made

pytestmark = pytest.mark.usefixtures("costly")

HIGH = (0.90, 0.92, 0.94)
PAGE = "# Title\n\n<!-- table: begin -->\nTO BE REPLACED\n<!-- table: end -->\n\nThe rest.\n"


def runs(folder: Path, conditions: Sequence[Made]) -> Path:
    for number, one in enumerate(conditions):
        for record in one.runs(HIGH):
            name = f"{number}-seed-{record.facts.seed}"
            local = {"output": {"root": "/somewhere/on/this/machine"}}
            told = {"tracker": {"sweep": "ladder", "condition": record.facts.swept}}
            changed = replace(record, config={**record.config, **local, **told})
            made.write_run(folder / name, changed)
    return folder


def test_a_page_is_written_between_its_markers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = runs(tmp_path / "runs", [Made(), Made(per_round=16)])
    page, tables = tmp_path / "page.md", tmp_path / "t.parquet"
    page.write_text(PAGE)
    assert main([str(place), "--tables", str(tables), "--docs", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("# Title\n\n<!-- table: begin -->\n\n6 runs, 2 conditions, 3 seeds")
    assert text.endswith("<!-- table: end -->\n\nThe rest.\n")
    assert "TO BE REPLACED" not in text
    # Equal to the last bit in every seed: an interval without width decides nothing.
    because = markdown(f"N=16 against N=1: +0.0 [+0.0, +0.0] points (95%): {NO_WIDTH}")
    assert f"| cannot tell | {because} |" in text
    # 0.90, 0.92, 0.94: mean 0.92, t of 2 times 0.02 / sqrt(3), on log odds over 0.92 times 0.08.
    assert "| 0.920 [0.854, 0.958] |" in text
    assert "SWEEP=staleness_nano" in text
    assert "cannot tell: More updates per round cost win-rate." in capsys.readouterr().out
    again = page.read_bytes()
    assert main(["--tables", str(tables), "--docs", str(page)]) == 0
    assert page.read_bytes() == again


def test_nothing_of_the_machine_is_kept(tmp_path: Path) -> None:
    place, tables = runs(tmp_path / "runs", [Made()]), tmp_path / "t.parquet"
    assert main([str(place), "--tables", str(tables)]) == 0
    assert all("/somewhere" not in config for config in load_benchmark(tables).runs["config"])


def test_unfinished_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.write_run(tmp_path / "runs" / "a", made.record("a", 1), state="failed")
    assert main([str(tmp_path / "runs"), "--tables", str(tmp_path / "t.parquet")]) == 2
    assert "1 runs did not finish" in capsys.readouterr().err
    assert not (tmp_path / "t.parquet").exists()


def test_a_page_without_markers_is_refused_before_anything_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, page = runs(tmp_path / "runs", [Made()]), tmp_path / "page.md"
    page.write_text("no markers")
    tables = tmp_path / "t.parquet"
    assert main([str(place), "--tables", str(tables), "--docs", str(page)]) == 2
    assert "no page with a line" in capsys.readouterr().err
    assert not tables.exists()


def test_the_committed_benchmark_is_whole_small_and_what_its_page_says() -> None:
    size = sum(path.stat().st_size for path in files(TABLES).values())
    assert size < 10 * 2**20
    tables = load_benchmark()
    seeds = tables.runs.groupby(["sweep", "env_id", "condition"])["seed"].nunique()
    assert seeds.min() >= 5
    assert set(tables.runs["state"]) == {"finished"}
    assert not json.dumps(list(tables.runs["config"])).count("/tmp")
    page = (Path(__file__).parents[3] / "docs" / "benchmark.md").read_text()
    assert tables.overview in page
    for one in answers(tables).every:
        assert f"| {one.verdict} | {markdown(one.evidence)} |" in page
    assert pd.api.types.is_integer_dtype(tables.runs["seed"])
