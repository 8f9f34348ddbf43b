"""Tables that were saved and are read again, thinned out or whole."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd
import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.filters import parse_filters
from rlhf_lab_analysis.sources.record import Reading
from rlhf_lab_analysis.tables.__main__ import main
from rlhf_lab_analysis.tables.compact import compact
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.store import save
from rlhf_lab_analysis.tables.table import Tables, make_tables
from tests.support import table_records as made

pytestmark = pytest.mark.usefixtures("costly")


def same(one: Tables, other: Tables) -> None:
    for name in ("points", "versions", "runs"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_like=True)


def test_saved_tables_are_read_as_the_runs_they_were_made_of(tmp_path: Path) -> None:
    record = made.record(
        "a", 1, sweep="ladder", swept="run.updates_per_round=4", tags=("x", "y"),
        rounds=made.rounds(metrics={"seed": 3.5, "note": "a"}),
    )  # fmt: skip
    first = made.tables(record, made.record("b", 2), made.record("c", None))
    save(first, tmp_path / "t.parquet")
    same(gather([str(tmp_path / "t.parquet")]), first)
    # A folder is searched, and told by what lies in it.
    again = gather([str(tmp_path)])
    same(again, first)
    assert again.findings == first.findings
    assert list(again.points["metric/seed"].dropna()) == [3.5] * 4


def test_a_key_that_distinguishes_conditions_is_no_metric(tmp_path: Path) -> None:
    slow, fast = (made.config(1) | {"optim": {"lr": rate}} for rate in (1e-4, 1e-3))
    first = made.tables(made.record("a", 1, config=slow), made.record("b", 1, config=fast))
    assert sorted(first.points["optim.lr"].unique()) == [1e-4, 1e-3]
    path = str(tmp_path / "t.parquet")
    save(first, tmp_path / "t.parquet")
    same(gather([path]), first)
    alone = gather([path], parse_filters(["optim.lr=0.001"]))
    assert "optim.lr" not in alone.points and len(alone.runs) == 1


def test_what_cannot_be_seen_again_is_still_told(tmp_path: Path) -> None:
    rows = made.rounds()
    rows[2] = {**rows[2], "reward/mean": math.nan}
    first = made.tables(made.record("a", 1, rounds=rows))
    save(first, tmp_path / "t.parquet")
    again = gather([str(tmp_path / "t.parquet")])
    assert [one.kind for one in again.findings] == ["not_finite"]
    assert again.findings == first.findings


def test_the_same_run_from_its_folder_and_a_table_is_there_once(tmp_path: Path) -> None:
    record = made.record("a", 1)
    made.write_run(tmp_path / "runs" / "a", record)
    path = tmp_path / "t.parquet"
    save(gather([str(tmp_path / "runs")]), path)
    both = gather([str(path), str(tmp_path / "runs")])
    assert len(both.runs) == 1
    assert made.kinds(both) == ["duplicate"]


def test_a_compact_run_keeps_its_last_points_its_versions_and_nothing_local() -> None:
    config = {**made.config(), "output": {"root": "/somewhere"}, "tracker": {"sweep": "s"}}
    record = made.record(
        "a", 1, config=config, rounds=made.rounds(256),
        evals=made.evals((0, 33, 256), {"gold/win_rate": 0.5}), planned_rounds=256, sweep="s",
    )  # fmt: skip
    (kept,) = compact(Reading((record,)), 4).records
    assert [row["total/rounds"] for row in kept.rounds] == [33, 64, 128, 192, 256]
    assert "output" not in kept.config
    assert kept.facts.sweep == "s"
    # It was not cut short, though it has few points.
    small = make_tables(Reading((kept,)))
    assert made.kinds(small) == []
    assert list(small.versions["x/wall_seconds"]) == [0, 330, 2560]
    (all_of_it,) = compact(Reading((made.record(),)), 100).records
    assert all_of_it.rounds == made.rounds()


def test_a_sweep_may_keep_some_metrics_of_every_round() -> None:
    own = {"reward/mean": 1.23456789, "update/loss": 2.0}
    rounds = [{**row, **own} for row in made.rounds(8)]
    records = [made.record("a", 1, rounds=rounds, sweep=sweep) for sweep in ("s", "t")]
    kept = {"s": ("total/rounds", "reward/mean")}
    every, few = compact(Reading(tuple(records)), 2, kept).records
    assert [row["total/rounds"] for row in every.rounds] == [1, 2, 3, 4, 5, 6, 7, 8]
    whole, part = every.rounds[3], every.rounds[4]
    assert whole == rounds[3]
    assert part == {"total/rounds": 5, "reward/mean": 1.235}
    assert len(few.rounds) < len(rounds)


def test_a_run_that_was_cut_short_stays_so_when_it_is_compact() -> None:
    cut = made.record("a", 1, rounds=made.rounds(3), planned_rounds=8)
    small = make_tables(compact(Reading((cut,)), 2))
    assert "3 of 8 rounds" in small.findings[0].what


def test_the_command_writes_compact_tables(tmp_path: Path) -> None:
    made.write_run(tmp_path / "runs" / "a", made.record("a", 1, rounds=made.rounds(9)))
    out = tmp_path / "t.parquet"
    assert main([str(tmp_path / "runs"), "--compact", "3", "--out", str(out)]) == 0
    assert list(gather([str(out)]).points["x/rounds"]) == [3, 4, 6, 9]
    assert "tracker" not in json.loads(gather([str(out)]).runs["config"][0])


def test_wrong_counts_and_missing_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write_run(tmp_path / "runs" / "a", made.record("a", 1))
    assert main([str(tmp_path / "runs"), "--compact", "0"]) == 2
    assert "--compact 0: pass how many points" in capsys.readouterr().err
    save(made.tables(made.record("a", 1)), tmp_path / "t.parquet")
    (tmp_path / "t.versions.parquet").unlink()
    with pytest.raises(UserError, match=r"versions\.parquet: it is missing"):
        gather([str(tmp_path / "t.parquet")])
