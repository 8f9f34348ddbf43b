"""Runs are read from any folder, wherever they were moved, and nothing is trained unasked."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from rlhf_lab.experiment.artifacts.products import (
    PRODUCTS,
    UsedProducts,
    products_of,
    without_makers,
)
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.tables.gather import gather
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")

TINY = (
    *("debug=tiny", "task=arithmetic", "reward=task_rule", "sft.steps=4", "eval.snapshots=1"),
    *("run.updates=2", "eval.prompts=4"),
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two runs, started with relative paths in a folder that was moved since."""
    folder = tmp_path_factory.mktemp("swept")
    words = ["train", "-m", *TINY, "seed=1,2", "launcher=local"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert call(*words, "output.cache=cache", monkeypatch=monkeypatch) == 0
    return folder.rename(folder.with_name("moved"))


@pytest.fixture
def project(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the working folder."""
    folder = tmp_path / "project"
    shutil.copytree(swept, folder)
    monkeypatch.chdir(folder)
    return folder


def sweep_in(project: Path) -> Path:
    (sweep,) = (project / "runs").iterdir()
    return sweep


def listed(sweep: Path, capsys: pytest.CaptureFixture[str], **patched: pytest.MonkeyPatch) -> str:
    capsys.readouterr()
    assert call("runs", str(sweep), **patched) == 0
    return capsys.readouterr().out.splitlines()[-1].replace(str(sweep), "SWEEP")


def test_a_sweep_reads_the_same_from_any_folder_and_wherever_it_was_moved(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep = sweep_in(project)
    record = json.loads((sweep / "sweep.json").read_text())
    assert record["folders"] == {"seed-1": "seed-1", "seed-2": "seed-2"}
    there = listed(Path("runs") / sweep.name, capsys, monkeypatch=monkeypatch)
    assert "2 jobs: 2 finished" in there
    copied, moved = tmp_path / "copied", tmp_path / "far" / "moved"
    shutil.copytree(sweep, copied)
    moved.parent.mkdir()
    monkeypatch.chdir(tmp_path / "far")
    # As it was written before.
    record["folders"] = {name: f"runs/{sweep.name}/{name}" for name in record["folders"]}
    (copied / "sweep.json").write_text(json.dumps(record))
    shutil.copytree(sweep, moved)
    for one in (sweep, copied, moved, Path("moved"), Path("../copied")):
        assert "2 jobs: 2 finished" in listed(one, capsys, monkeypatch=monkeypatch)
        kinds = {finding.kind.value for finding in gather([str(one)]).findings}
        assert "absent" not in kinds
    os.rename(moved, tmp_path / "again")
    assert "2 jobs: 2 finished" in listed(tmp_path / "again", capsys, monkeypatch=monkeypatch)


def test_from_another_folder_a_run_finds_its_products_or_refuses_to_train_them(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = sweep_in(project) / "seed-1"
    (recorded,) = products_of(run, may_make=False).recorded
    assert recorded.stage == "sft" and recorded.path.startswith("../../../cache/sft/")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    def says(*words: str, code: int) -> str:
        assert call(*words, monkeypatch=monkeypatch) == code
        return capsys.readouterr().err

    says("evaluate", str(run), code=0)
    again = ["replay", str(run), "output.cache=other", "output.dir=again"]
    says(*again, code=0)
    assert not (elsewhere / "other").exists()
    shutil.copytree(project, tmp_path / "copy")
    shutil.rmtree(project)
    says("evaluate", f"../copy/runs/{run.parent.name}/seed-2", code=0)
    # So deep that the recorded ../../../cache does not lead to the cache that all tests share.
    alone = tmp_path / "far" / "from" / "here" / "alone"
    shutil.copytree(tmp_path / "copy" / run.relative_to(project), alone)
    shutil.move(tmp_path / "copy" / "cache", tmp_path / "kept")
    for command in (["evaluate"], ["replay"]):
        said = says(*command, str(alone), code=2)
        assert ": the sft of" in said and "--make-stages" in said
        assert len(said.splitlines()) == 1
    assert not (elsewhere / "cache").exists() and not (elsewhere / "runs").exists()
    says("evaluate", str(alone), f"output.cache={tmp_path}/kept", code=0)
    says("export", str(alone), str(elsewhere / "exported"), code=0)
    says("evaluate", str(alone), "--make-stages", code=0)
    assert (elsewhere / "cache" / "sft").is_dir()


def test_a_run_goes_on_from_another_folder_with_the_files_of_the_one_it_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        folder.mkdir()
    (project / "own_reward.py").write_text(
        "def short(prompt, completion, **_):\n    return -float(len(completion))\n"
    )
    monkeypatch.chdir(project)
    own = ("reward=function", "reward.path=own_reward.short", "run.updates=4")
    words = [*TINY, *own, "output.dir=runs/one"]
    stages = f"output.cache={tmp_path}/cache"
    assert call("train", *words, stages, "checkpoint.pause_round=2", monkeypatch=monkeypatch) == 0
    assert "rlhf-lab resume runs/one" in capsys.readouterr().out
    monkeypatch.chdir(elsewhere)
    run = Path("../project/runs/one")
    for more in (["checkpoint.pause_round=3"], ["checkpoint.pause_round=0"]):
        assert call("resume", str(run), *more, monkeypatch=monkeypatch) == 0
        captured = capsys.readouterr()
        assert f"in {project}, where the run was started" in captured.err
        monkeypatch.chdir(elsewhere)
    assert "resumed at round 3 of 4" in captured.out
    replay = ["replay", str(run), "output.dir=again"]
    assert call(*replay, monkeypatch=monkeypatch) == 0
    assert (elsewhere / "again" / "manifest.json").is_file()
    monkeypatch.chdir(elsewhere)
    for command in (["evaluate", str(run)], ["export", str(run), "exported"]):
        assert call(*command, monkeypatch=monkeypatch) == 0
        monkeypatch.chdir(elsewhere)
    for command in (["timeline", str(run)], ["plan", str(run)], ["runs", str(run)]):
        assert call(*command, monkeypatch=monkeypatch) == 0
    assert call("report", str(run), "--out", "page.html", monkeypatch=monkeypatch) == 0
    assert {path.name for path in elsewhere.iterdir()} >= {"exported", "page.html", "again"}
    assert not (project / "exported").exists()


def test_products_are_known_by_their_settings_whatever_the_code() -> None:
    key = {"seed": 1, "code": "a", "start": {"code": "b", "task": {"name": "c"}}}
    assert without_makers(key) == {"seed": 1, "start": {"task": {"name": "c"}}}


def test_a_product_is_found_near_the_run_where_it_was_or_in_the_cache_under_its_former_name(
    tmp_path: Path,
) -> None:
    run, made = tmp_path / "run", tmp_path / "cache" / "sft" / "old"
    for folder in (run, made):
        folder.mkdir(parents=True)
    (made / "entry.json").write_text("{}")
    used = UsedProducts()
    used.add("sft", {"seed": 1, "code": "old"}, made)
    used.write(run)
    key, other = {"seed": 1, "code": "new"}, tmp_path / "other" / "sft"
    own = products_of(run, may_make=False)
    assert own.find("sft", key, other / "new") == made
    assert own.find("labels", key, other / "new") is None
    assert own.find("sft", {"seed": 2, "code": "old"}, other / "new") is None
    other.mkdir(parents=True)
    shutil.move(made, other / "old")
    assert own.find("sft", key, other / "new") == other / "old"
    (other / "old" / "entry.json").write_text("{ }")
    assert own.find("sft", key, other / "new") is None, "it is another one"
    with pytest.raises(UserError, match="--make-stages"):
        own.require_permission("sft", other / "new")


def test_a_damaged_list_of_products_is_refused(tmp_path: Path) -> None:
    (tmp_path / PRODUCTS).write_text('{"products": [{"stage": 1}]}')
    with pytest.raises(UserError, match=r"products.json.*delete it"):
        products_of(tmp_path, may_make=False)
