"""Runs with nodes that earlier ones lack: a fork is a condition of its own, whose curve leaves its
parent's at the last shared round; an option at its default makes no condition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.folders import read_folder
from rlhf_lab_analysis.sources.record import Facts, Source, flat_config
from rlhf_lab_analysis.tables.completed import completed
from rlhf_lab_analysis.tables.frames import Placed, points_frame
from tests.support.live_runs import write_run
from tests.support.table_records import record


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
    runs = [Placed(one, place_of(one)) for one in read_folder(tmp_path).records]
    frame = points_frame(runs, ["reward/mean"])
    drawn = {name: list(rows["reward/mean"]) for name, rows in frame.groupby("run")}
    assert drawn == {"a": [0, 1, 2, 3, 4, 5], "b": [3, 4, 5]}
    parent, own = (run.place.condition for run in runs)
    assert own.endswith(" forked at 4: optim.lr=0.01")
    assert "fork" not in parent


OLD = {"algo": {"name": "ppo", "lr": 1}, "terms": {"a": {"name": "x"}}}


def completed_configs(
    *configs: tuple[dict[str, Any], set[str] | None], source: Source = Source.folder
) -> list[dict[str, Any]]:
    records = [
        replace(
            record(f"r{place}", place),
            source=source,
            config=config,
            facts=replace(Facts(), changed=None if changed is None else frozenset(changed)),
        )
        for place, (config, changed) in enumerate(configs)
    ]
    return [flat_config(one.config) for one in completed(records)]


def test_an_option_that_a_run_lacks_has_the_default_that_others_recorded() -> None:
    new = {
        "algo": {"name": "ppo", "lr": 1, "kl": 0.0, "beta": 3},
        "terms": {"a": {"name": "x", "device": "auto"}, "b": {"name": "y", "device": "auto"}},
        "cluster": {"name": "node", "size": 2},
    }
    old, same = completed_configs((OLD, None), (new, {"algo.beta"}))
    assert same == flat_config(new)
    assert set(same.items()) - set(old.items()) == {
        ("algo.beta", 3),
        ("terms.b.name", "y"),
        ("terms.b.device", "auto"),
    }, "one was changed, and one term is another's"


@pytest.mark.parametrize(
    "other",
    [
        ({"algo": {"name": "rloo", "kl": 0.0}}, set()),
        ({"algo": {"name": "ppo", "kl": 0.0}}, None),
        ({"algo": {"name": "ppo", "lr": 1}}, set()),
    ],
    ids=["another part", "defaults unknown", "nothing new"],
)
def test_nothing_else_is_filled_in(other: tuple[dict[str, Any], set[str] | None]) -> None:
    old, _ = completed_configs((OLD, None), other)
    assert old == flat_config(OLD)
