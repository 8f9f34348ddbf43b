"""What a run tells Weights & Biases of itself, and that Open RL Benchmark finds it by that."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_lab.experiment.config.config import plain
from rlhf_lab.runs.trackers.mirrors import (
    TrackedRun,
    env_id,
    exp_name,
    group,
    mirror_evaluation,
    open_mirrors,
    run_name,
    table_rounds,
    tags,
)
from rlhf_lab.runs.trackers.options import TrackerOptions, WandbMode
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.tensorboard_files import read_events
from tests.conftest import MakeConfig
from tests.support.fuzz_runs import sampled_at

pytestmark = pytest.mark.usefixtures("costly")

CONFIG = {
    "seed": 3,
    "task": {"part": "TldrNano", "name": "tldr_nano"},
    "model": {"part": "ScratchModel", "name": "nano_s"},
    "algo": {"part": "PPO", "name": "ppo"},
    "mode": {"part": "Mode", "name": "sync"},
    "correction": {"part": "NoCorrection", "name": "none"},
    "run": {"updates": 4, "updates_per_round": 2, "passes": 1},
}
CONDITION = "algo=ppo,run.updates_per_round=2,model=nano_s"
OPTIONS = TrackerOptions(
    wandb=WandbMode.offline, sweep="ladder", condition=CONDITION, wandb_tags=["mine", "ppo"]
)
ROWS = [
    {"version": 0, "gold/win_rate": 0.25, "sample/length": 9.0, "timing/seconds": 1.0},
    {"version": 2, "gold/win_rate": 0.75, "sample/length": 8.0, "timing/seconds": 1.0},
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrackedRun:
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "ladder" / "seed=3"
    folder.mkdir(parents=True)
    return TrackedRun(folder, CONFIG, "r1", commit="0123abcd")


def trained(run: TrackedRun) -> None:
    """Two rounds of two updates."""
    (tracker,) = open_mirrors(OPTIONS, run, 0, print)
    for step in range(2):
        tracker.log({"reward/mean": step / 2, "total/updates": 2 * step + 2}, step)
    tracker.close()


def records(file: Path) -> list[dict[str, Any]]:
    """A .wandb file as wandb's own reader tells it."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


def told(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The `run` records, and all rows of history, in the order of the files."""
    every = [record for file in files(folder) for record in records(file)]
    heads = [record["run"] for record in every if record["type"] == "run"]
    rows = [record["history"]["item"] for record in every if record["type"] == "history"]
    return heads, rows


def test_names_tell_the_environment_and_the_condition_apart(run: TrackedRun) -> None:
    assert env_id(run) == "tldr_nano-nano_s"
    assert exp_name(run, CONDITION) == "ppo-sync-run.updates_per_round=2"
    assert exp_name(run, "") == exp_name(run, "seed=4,model=nano_m") == "ppo-sync"
    masked = {**CONFIG, "correction": {"name": "icepop"}}
    assert exp_name(TrackedRun(run.folder, masked, "r"), "correction=icepop") == "ppo-sync-icepop"
    # Values with commas are one value, and nothing in a name ends a filter.
    odd = 'mode.lag_probabilities="0.5,0.5",optim.lr=1e-4'
    assert exp_name(run, odd) == "ppo-sync-mode.lag_probabilities=_0.5_0.5_-optim.lr=1e-4"


def test_a_run_is_named_after_its_folder_or_as_a_job_of_its_sweep(run: TrackedRun) -> None:
    assert run_name(run, TrackerOptions()) == "seed=3"
    assert run_name(run, OPTIONS) == "ppo-sync-run.updates_per_round=2-seed3"


def test_group_and_tags(run: TrackedRun) -> None:
    assert group(run, OPTIONS) == "ladder"
    assert group(run, TrackerOptions()) == "ladder", "the folder above the run's"
    assert group(run, TrackerOptions(sweep="a", wandb_group="b")) == "b"
    named = ("ladder", "tldr_nano", "ppo", "sync", "nano_s", "0123abcd", "mine")
    assert tags(run, OPTIONS) == named
    assert tags(run, TrackerOptions(sweep="s" * 70))[0] == "s" * 64
    for tag in ("", "t" * 65):
        with pytest.raises(UserError, match=r"tracker.wandb_tags.* choose 1 to 64"):
            TrackerOptions(wandb_tags=[tag])


# Of its own dependencies: what they still use of older Pythons.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_open_rl_benchmark_finds_the_run_and_its_win_rate(run: TrackedRun) -> None:
    trained(run)
    mirror_evaluation(OPTIONS, run, ROWS, print)
    heads, rows = told(run.folder)
    assert {head["run_id"] for head in heads} == {"r1"}
    for head in heads:
        assert (head["run_group"], head["job_type"]) == ("ladder", "train")
        config = head["config"]["update"]
        assert (config["env_id"], config["seed"]) == ("tldr_nano-nano_s", 3)
        assert config["algo"]["name"] == "ppo", "the whole config is there too"
    # The axis that it reads by default, in updates: 2 rounds of 2, then versions 0 and 2.
    assert [(row["_step"], row["global_step"]) for row in rows] == [(0, 2), (1, 4), (4, 0), (5, 4)]
    frame = rlops_curve(heads[-1], rows, "ppo-sync-run.updates_per_round=2", "mine")
    assert frame["global_step"].tolist() == [0, 4]
    assert frame["charts/episodic_return"].tolist() == [0.25, 0.75]
    assert rlops_curve(heads[-1], rows, "ppo-async", "mine") is None
    assert rlops_curve(heads[-1], rows, "ppo-sync-run.updates_per_round=2", "theirs") is None


def test_charts_are_over_updates_and_samples_are_tables(run: TrackedRun) -> None:
    (tracker,) = open_mirrors(OPTIONS, run, 0, print)
    for step in range(2):
        tracker.log_samples([sampled_at(step)])
        tracker.log({"reward/mean": step / 2, "total/updates": 2 * step + 2}, step)
    tracker.close()
    (file,) = files(run.folder)
    metrics = [record["metric"] for record in records(file) if record["type"] == "metric"]
    assert [(one.get("name"), one.get("glob_name"), one.get("step_metric")) for one in metrics] == [
        ("global_step", None, None),
        (None, "*", "global_step"),
    ]
    _, rows = told(run.folder)
    assert [row["global_step"] for row in rows] == [2, 4]
    for step, row in enumerate(rows):
        table = json.loads((file.parent / "files" / row["sample/texts.path"]).read_text())
        assert table["data"][0][:6] == [step, step, "a", "1 + 1 =", "2", 1.0]


def test_a_run_sends_a_bounded_number_of_tables(run: TrackedRun) -> None:
    assert table_rounds(run) == 1
    long = {**CONFIG, "run": {"updates": 10_000, "updates_per_round": 2, "passes": 1}}
    assert table_rounds(TrackedRun(run.folder, long, "r")) == 100


def test_the_page_of_the_run_is_printed(run: TrackedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = SimpleNamespace(url="https://example.org/me/p/runs/r1")
    monkeypatch.setattr("rlhf_lab.runs.trackers.mirrors.open_wandb", lambda *_: tracker)
    said: list[str] = []
    open_mirrors(OPTIONS, run, 0, said.append)
    assert said == [f"Weights & Biases: {tracker.url}"]


def test_an_evaluation_stands_at_its_updates_in_tensorboard_and_only_once(run: TrackedRun) -> None:
    options = TrackerOptions(tensorboard=True)
    (tracker,) = open_mirrors(options, run, 0, print)
    for step in range(2):
        tracker.log({"reward/mean": step / 2, "total/updates": 2 * step + 2}, step)
    tracker.close()
    for _ in range(2):
        mirror_evaluation(options, run, [{"eval/prompts": 4, **row} for row in ROWS], print)
    assert len(list(run.folder.glob("tensorboard/*.evaluations"))) == 1
    (record,) = read_events(run.folder).records
    assert [(row["_step"], row["reward/mean"]) for row in record.rounds] == [(2, 0.0), (4, 0.5)]
    assert [(row["version"], row["gold/win_rate"]) for row in record.evals] == [
        (0, 0.25),
        (2, 0.75),
    ]
    assert [row["sample/length"] for row in record.evals] == [9.0, 8.0]


def rlops_curve(head: dict[str, Any], rows: list[dict[str, Any]], exp: str, tag: str) -> Any:
    """What `rlops --offline` makes of the run for the filter `?we=me&wpn=p&ceik=env_id&
    cen=exp_name&metric=gold/win_rate` `EXP?tag=TAG`; None if it finds nothing."""
    rlops = importlib.import_module("openrlbenchmark.rlops")
    peewee, pandas = importlib.import_module("peewee"), importlib.import_module("pandas")
    database = peewee.SqliteDatabase(":memory:")
    rlops.database_proxy.initialize(database)
    database.create_tables([rlops.OfflineRun, rlops.Tag, rlops.OfflineRunTag])
    keys = {"id": head["run_id"], "name": "n", "state": "finished", "url": "u", "path": ["p"]}
    config = {name: value for name, value in head["config"]["update"].items() if name[0] != "_"}
    rlops.OfflineRun.create(**keys, username="me", project="p", entity="me", config=config)
    for name in head["tags"]:
        # Its own `tags.add` stores the row's number where its query looks for the run's id.
        link = {"tag": rlops.Tag.create(name=name), "offlinerun": head["run_id"]}
        rlops.OfflineRunTag.create(**link)
    runset = rlops.Runset(
        name="n", entity="me", project="p", metric="gold/win_rate", exp_name=exp,
        env_id="tldr_nano-nano_s", tags=[tag], offline_db=database, offline=True,
    )  # fmt: skip
    found = runset.runs
    for one in found:
        one.history = lambda **_: pandas.DataFrame(rows)
    runset.__class__ = type("Found", (rlops.Runset,), {"runs": found})
    curves = rlops.create_hypothesis(runset).runs
    database.close()
    return curves[0].df if len(curves) else None


def test_an_evaluation_is_told_once_and_another_one_as_a_run_of_its_own(run: TrackedRun) -> None:
    mirror_evaluation(OPTIONS, run, ROWS, print)
    first = list(files(run.folder))
    slower = [{**row, "timing/seconds": 9.0} for row in ROWS]
    mirror_evaluation(OPTIONS, run, slower, print)
    assert list(files(run.folder)) == first, "nothing but the clock differs"
    again = TrackedRun(run.folder, CONFIG, "r1", "evaluate")
    better = [{**row, "gold/win_rate": 0.875} for row in ROWS]
    for _ in range(2):
        mirror_evaluation(OPTIONS, again, better, print)
    heads, rows = told(run.folder)
    assert [head["job_type"] for head in heads] == ["train", "evaluate"]
    assert heads[1]["run_id"].startswith("r1-") and heads[0]["run_id"] == "r1"
    names = [head["config"]["update"]["exp_name"] for head in heads]
    assert names[1] == f"{names[0]}-evaluate", "a filter for the run does not count it twice"
    assert [row["gold/win_rate"] for row in rows] == [0.25, 0.75, 0.875, 0.875]
    assert [row["eval/sample/length"] for row in rows] == [9.0, 8.0, 9.0, 8.0]
    assert not any("sample/length" in row or "timing/seconds" in row for row in rows)


def test_nothing_is_told_of_an_evaluation_unless_asked(run: TrackedRun) -> None:
    mirror_evaluation(TrackerOptions(), run, ROWS, print)
    assert list(run.folder.iterdir()) == []


def test_a_composed_config_has_the_names_that_runs_go_by(
    config_of: MakeConfig, tmp_path: Path
) -> None:
    config = config_of("algo=grpo", "mode=lagged", "correction=icepop", "model=nano_m")
    run = TrackedRun(tmp_path, plain(config), "r")
    assert env_id(run) == "tldr_nano-nano_m"
    assert exp_name(run, config.tracker.condition) == "grpo-lagged-icepop"
