"""The study of warnings: which runs are compared, and the page that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.pages.early_warning import SIGNALS, main
from rlhf_lab_analysis.benchmark.kept import SIGNALS as KEPT
from rlhf_lab_analysis.sources.record import Record
from tests.support import table_records as made
from tests.support.collapsing_runs import FALLS, grid

pytestmark = pytest.mark.usefixtures("costly")

PAGE = "# Title\n\n<!-- table: begin -->\n<!-- table: end -->\n"


def signalled(record: Record) -> Record:
    """The run with an entropy that falls five rounds before a collapse, and a gradient norm that is
    the same in all runs."""
    rewards = [row["reward/mean"] for row in record.rounds]
    falls = rewards == FALLS
    rows = [
        {**row, "update/entropy": 0.0 if falls and place >= 4 else 1.0, "update/grad_norm": 1.0}
        for place, row in enumerate(record.rounds)
    ]
    return replace(record, rounds=rows)


def folder(path: Path, records: Sequence[Record]) -> str:
    for number, record in enumerate(records):
        made.write_run(path / str(number), signalled(record))
    return str(path)


def cells_of(page: str, name: str) -> list[list[str]]:
    """The cells of the rows that begin with a signal."""
    lines = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
    return [[cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines]


def test_a_signal_that_warns_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert main([folder(tmp_path / "runs", grid()), "--docs", str(page)]) == 0
    text = page.read_text()
    fallen, stable = 30, 30
    assert (
        f"60 runs: {fallen} collapsed, at rounds 12 to 12 (median 12), and {stable} did not" in text
    )
    among_all, _, _, alarm = cells_of(text, "update/entropy")
    # Its mean over four rounds falls with round 5, seven rounds before the collapse.
    assert among_all == [*["1.00 [1.00, 1.00]"] * 2, "0.50 [0.50, 0.50]", "-"]
    assert alarm == [f"{fallen} of {fallen}", "7", f"0 of {stable}"]
    among_all, among_one_age, _, alarm = cells_of(text, "update/grad_norm")
    assert among_all[:2] == among_one_age[:2] == ["0.50 [0.50, 0.50]"] * 2
    assert alarm == [f"0 of {fallen}", "-", f"0 of {stable}"]
    assert not cells_of(text, "ratio/ess"), "a signal that no run recorded has no row"


def test_runs_of_which_none_collapses_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([folder(tmp_path, grid(top=1.0))]) == 2
    said = capsys.readouterr().err
    assert "0 runs collapsed and 60 did not" in said and "SWEEP=staleness_rate_nano" in said


def test_all_signals_are_kept_of_every_round() -> None:
    assert {*SIGNALS} == {*KEPT}


@pytest.mark.pages
def test_the_page_is_that_of_the_runs_that_are_kept(tmp_path: Path) -> None:
    page, copy = Path(__file__).parents[3] / "docs" / "warnings.md", tmp_path / "page.md"
    copy.write_text(page.read_text())
    assert main(["--docs", str(copy)]) == 0
    assert copy.read_text() == page.read_text()
