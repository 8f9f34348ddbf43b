"""Runs with nodes that earlier ones lack: a fork is a condition of its own, whose curve leaves its
parent's at the last shared round; a cluster that nothing uses is none."""

from __future__ import annotations

from pathlib import Path

from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.folders import read_folder
from rlhf_lab_analysis.tables.frames import Placed, points_frame
from rlhf_lab_analysis.tables.group_checks import compared_settings
from tests.support.live_runs import write_run


def test_a_fork_is_drawn_from_its_parents_curve(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rounds=6, run_id="a")
    fork = {
        "parent": str(tmp_path / "a"),
        "parent_id": "a",
        "round": 4,
        "changes": {"optim.lr": [0.1, 0.01]},
    }
    folder = write_run(tmp_path / "b", rounds=6, run_id="b", fork=fork)
    (folder / "config.yaml").write_text("fork: {parent: a, round: 4, without_rows: []}\n")
    runs = [Placed(record, place_of(record)) for record in read_folder(tmp_path).records]
    frame = points_frame(runs, ["reward/mean"])
    drawn = {name: list(rows["reward/mean"]) for name, rows in frame.groupby("run")}
    assert drawn == {"a": [0, 1, 2, 3, 4, 5], "b": [3, 4, 5]}
    parent, own = (run.place.condition for run in runs)
    assert own.endswith(" forked at 4: optim.lr=0.01")
    assert "fork" not in parent


def test_a_cluster_that_decides_nothing_makes_no_other_condition() -> None:
    def settings(executor: str, **nodes: object) -> dict[str, str]:
        return compared_settings({"mode": {"executor": executor}, **nodes})

    cluster = {"cluster": {"generators": 2}}
    assert settings("inline", **cluster) == settings("inline")
    assert settings("virtual", **cluster) != settings("virtual")
