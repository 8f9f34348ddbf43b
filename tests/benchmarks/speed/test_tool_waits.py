"""What asynchrony gains where episodes wait for tools, on a small cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.speed import tool_waits
from benchmarks.speed.tool_waits import Episodes, course, interval, main, table
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.generators.tool_times import ToolTimes
from rlhf_lab_analysis.markdown import BEGIN, END

SMALL = ClusterOptions(generators=2, sequences=100, sync_seconds=0.3, load_seconds=0.3)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_waits, "GROUPS", 4)
    monkeypatch.setattr(tool_waits, "ROUNDS", 3)
    monkeypatch.setattr(tool_waits, "TOOLS", ((0.0, 0.0), (4.0, 2.0)))
    monkeypatch.setattr(tool_waits, "STALENESS", (1, 2))


def test_waits_stand_behind_all_turns_but_the_last() -> None:
    episodes = Episodes(3, ToolTimes(2.0, 1.0))
    for number in range(5):
        rows, lengths = episodes.rows(number), episodes.lengths(number)
        assert lengths == [sum(row) for row in rows]
        for row, waits in zip(rows, episodes.waits(number), strict=True):
            assert [tokens for tokens, _ in waits] == [
                sum(row[: n + 1]) for n in range(len(row) - 1)
            ]
            assert all(seconds > 0 for _, seconds in waits)
    assert episodes.waits(1) == Episodes(3, ToolTimes(2.0, 1.0)).waits(1)
    assert Episodes(3, ToolTimes()).waits(1) == []


def test_sync_takes_turns_and_async_does_not() -> None:
    episodes = Episodes(1, ToolTimes(20.0, 1.0))
    sync, ahead = course(SMALL, episodes, 0), course(SMALL, episodes, 2)
    assert sync.wall == pytest.approx(sync.train + sync.wait)
    # Episodes of later rounds are written where others wait: two lanes alone gain less.
    assert sync.train <= ahead.wall < sync.wall / sync.ideal
    assert sync.ideal == pytest.approx(sync.wall / max(sync.train, sync.wait))


def test_an_interval_by_hand() -> None:
    # The mean of 1, 2 and 3 is 2, its standard error 1 / sqrt(3), and t(0.975, 2) is 4.303.
    assert interval([1.0, 2.0, 3.0]) == "2.00 [-0.48, 4.48]"


def test_the_table_has_a_row_for_each_kind_of_tool(tmp_path: Path) -> None:
    found = table(SMALL, [1, 2])
    assert [row[1] for row in found.rows] == ["", "2"]
    assert len(found.columns) == len(found.rows[0]) == 6
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    assert main(["--seeds", "2", "--docs", str(page)]) == 0
    assert "cluster=nodes_8_8, 2 seeds" in page.read_text()
