"""A search over real runs, as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.sweeps.options import SweeperOptions
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.space import parse_space
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.tables.gather import gather
from tests.support.examples import call
from tests.support.survival import outcome

pytest.importorskip("optuna", reason="needs pip install 'rlhf-lab[search]'")

RUN = ("debug=tiny", "task=arithmetic", "reward=task_rule")
RATES = "optim.lr=tag(log,interval(1e-4,1e-2))"
SEARCH = (
    "hydra/sweeper=rlhf_lab_search",
    "hydra.sweeper.trials=2",
    "hydra.sweeper.rungs=2",
    "hydra.sweeper.tuning_seeds=[101]",
    "hydra.sweeper.test_seeds=[1]",
)


@pytest.fixture
def words(cache: Path, tmp_path: Path) -> list[str]:
    where = [f"output.cache={cache}", f"output.root={tmp_path}/runs", "output.quiet=true"]
    return ["train", "-m", *SEARCH, *RUN, *where]


# The only search whose runs train: two trials, two tests and a run without pauses.
def test_a_search_over_real_runs_and_again(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(*words, RATES, "hydra.sweeper.dry=true", monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert "2 settings to round 2, 1 settings to round 4 of 4" in said
    assert "tuning amounts to 1.5 whole runs at most, then 2 runs on the test seeds" in said
    assert not (tmp_path / "runs").exists(), "a dry run writes nothing"

    assert call(*words, RATES, "hydra.sweeper.keep=true", monkeypatch=monkeypatch) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    report = json.loads((folder / "search.json").read_text())
    states = {trial["state"]: trial for trial in report["trials"]}
    assert set(states) == {"complete", "pruned"}
    assert report["spent"]["trial"]["rounds"] == 2 + 4
    assert report["spent"]["test"]["rounds"] == 8
    assert "gold/win_rate" in report["test"]

    chosen = folder / f"trial-{report['trial']:03d}/seed-101"
    options = [f"{key}={value}" for key, value in report["chosen"].items()]
    where = [words[-3], f"output.dir={tmp_path}/alone", "eval.snapshots=0", "seed=101"]
    assert call("train", *RUN, *options, *where, monkeypatch=monkeypatch) == 0
    assert outcome(chosen) == outcome(tmp_path / "alone"), "pauses changed the run"
    rows = [json.loads(line) for line in (chosen / "validation.jsonl").read_text().splitlines()]
    assert [row["proxy/mean"] for row in rows] == list(states["complete"]["values"].values())
    dropped = folder / f"trial-{states['pruned']['number']:03d}/seed-101"
    assert json.loads((dropped / "manifest.json").read_text())["state"] == "paused"

    before = {path: path.stat().st_mtime_ns for path in folder.glob("t*/*/*/*.jsonl")}
    assert call(*words, RATES, monkeypatch=monkeypatch) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.glob("t*/*/*/*.jsonl")} == before
    assert json.loads((folder / "search.json").read_text())["trials"] == report["trials"]
    told_apart(folder, report["trial"])


def told_apart(folder: Path, chosen: int) -> None:
    """The tables know which runs chose, and which were chosen for; those alone are compared."""
    made = gather([str(folder)])
    assert made.runs.groupby("role")["seed"].unique().map(list).to_dict() == {
        "test": [1],
        "tuning": [101],
    }
    read = made.versions[made.versions["label"] == "validation"]
    rounds = {trial: [2, 4] if trial == chosen else [2] for trial in (0, 1)}
    assert {
        int(name.rpartition("=")[2]): list(rows["version"])
        for name, rows in read.groupby("exp_name")
    } == rounds
    compared = cells(made)
    assert [cell.condition.split(" ")[0].rpartition("-test=")[2] for cell in compared.cells] == [
        "default",
        f"trial-{chosen:03d}",
    ]
    assert len(compared.left_out) == 2
    assert all("it tuned a search" in line for line in compared.left_out)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["optim.rate=choice(1,2)"], "optim.rate"),
        (["algo.beta=choice(0.1,-1)"], "algo.beta=-1"),
        (["run.updates_per_round=choice(1,3)"], "run.updates=4 is not divisible"),
        ([RATES, "hydra.sweeper.rungs=4", "hydra.sweeper.trials=8"], "rungs=4: a run of 4 rounds"),
        ([RATES, "eval.snapshots=0"], "eval.snapshots=0 leaves nothing to compare"),
        ([RATES, "hydra.sweeper.trails=8"], "trails"),
        ([RATES, "hydra.sweeper.sampler=best"], "sampler"),
        ([RATES, "hydra.sweeper.metric=gold/mean"], "allow_gold=true"),
        ([RATES, "checkpoint=none"], "pass checkpoint=minutes"),
        (["optim.lr=1e-3"], "nothing to search"),
        (["reward=reward_model", "model=nano_s,nano_m"], "model=nano_m makes another proxy"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_the_first_run(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    complaint: str,
) -> None:
    assert call(*words, *more, monkeypatch=monkeypatch) == 2
    assert complaint in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_command_without_runs_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("sft", *words[1:], RATES, monkeypatch=monkeypatch) == 2
    assert "pass it to `rlhf-lab train -m`" in capsys.readouterr().err


def test_the_searches_of_the_project_have_one_question_and_one_space() -> None:
    folder = conf_folder().parent / "sweeps"
    texts = [(folder / name).read_text() for name in ("search.yaml", "search_nano.yaml")]
    first = {text.splitlines()[0] for text in texts}
    assert len(first) == 1 and first.pop().endswith("?")
    sweepers = [yaml.safe_load(text)["hydra"]["sweeper"] for text in texts]
    assert list(sweepers[0]["params"]) == list(sweepers[1]["params"])
    for sweeper in sweepers:
        space = [f"{key}={value}" for key, value in sweeper.pop("params").items()]
        assert len(parse_space(space, OverridesParser.create())[1]) == len(space)
        options = SearchOptions(**sweeper)
        assert options.test_seeds[:3] == [1, 2, 3] and not options.needs_judge


def test_the_nano_search_could_start(
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = ["--config-dir", str(conf_folder().parent / "sweeps"), "--config-name", "search_nano"]
    where = [f"output.cache={cache}", f"output.root={tmp_path}/runs", "hydra.sweeper.dry=true"]
    assert call("train", "-m", *chosen, *where, monkeypatch=monkeypatch) == 0
    assert "tuning amounts to 8 whole runs at most" in capsys.readouterr().out


@pytest.mark.pages
def test_every_option_is_in_the_docs() -> None:
    page = (conf_folder().parent / "docs" / "sweeps.md").read_text(encoding="utf-8")
    for name in (*vars(SearchOptions()), *vars(SweeperOptions())):
        assert name in ("extend", "layout") or f"`{name}`" in page, name
