"""Sweeps of real runs: what is run, what is not, and what survives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.runs.summaries import list_runs
from rlhf_lab.sweeps.run_job import THREADS, pin
from tests.support.doors import LIMIT, door
from tests.support.examples import call
from tests.support.survival import wait_until
from tests.support.variants import names

# Does to its own process what a file beside it says, which is no setting of the run.
REWARD = """
import os, pathlib, signal, time

calls = 0

def score(prompt, completion, *, reference, hidden, finished, which):
    here = pathlib.Path(__file__).parent
    if completion == reference:  # of the check before the first step
        return 1.0
    if (here / f"fail-{which}").exists():
        raise RuntimeError("no reward today")
    if (here / f"kill-{which}").exists():
        # The job, whose worker this is.
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    global calls
    calls += 1
    slow = here / f"slow-{which}"
    # After the first round, by which a test sees that it has begun.
    if calls > 8 and slow.exists():
        time.sleep(float(slow.read_text()))
    (here / f"threads-{which}").write_text(os.environ["OMP_NUM_THREADS"])
    return len(completion) / 10
"""


# A worker of joblib imports everything anew, and so does its fork server: one will do.
LAUNCHERS = {"local": ["launcher=local"], "joblib": ["launcher=joblib", "hydra.launcher.n_jobs=1"]}


def manifests(root: Path) -> dict[str, Mapping[str, Any]]:
    """The manifests of the runs below a folder, by name."""
    return {run.name: run.manifest for run in list_runs(root)}


@pytest.fixture
def words(cache: Path, tmp_path: Path) -> list[str]:
    """A run of a second, without a proxy."""
    return [
        "debug=tiny",
        "run.updates=2",
        "task=arithmetic",
        "reward=task_rule",
        "eval.snapshots=0",
        f"output.cache={cache}",
        f"output.root={tmp_path}/runs",
    ]


def swept(words: list[str], *more: str) -> list[str]:
    return ["train", "-m", *words, "seed=1,2", "optim.lr=1e-4,2e-4", *more]


def test_an_option_of_a_swept_choice_is_set_for_all_jobs(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default algorithm has no such option; before, the sweep was refused after its checks."""
    sweep = ["train", "-m", *words, "hydra.sweeper.dry=true"]
    one = ["+hydra.sweeper.params.algo=ppo", "algo=ppo", "algo.lam=0.9"]
    assert call(*sweep, *one, monkeypatch=monkeypatch) == 0
    assert "1 job, 1 to run" in capsys.readouterr().out
    two = [*sweep, "algo=ppo,ma_ppo"]
    assert call(*two, "++algo.lam=0.9", monkeypatch=monkeypatch) == 0
    assert "2 jobs, 2 to run" in capsys.readouterr().out
    assert call(*two, "algo.lam=0.9", monkeypatch=monkeypatch) == 2
    assert "++algo.lam=... in a sweep over algo" in capsys.readouterr().err


# Two jobs in processes of their own, and a run by hand with the same bits.
def test_a_sweep_is_done_once_and_each_job_is_what_its_command_gives(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(*swept(words, "hydra.sweeper.dry=true"), monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert "4 jobs, 4 to run" in said and said.count("rlhf-lab train debug=tiny") == 4
    assert not (tmp_path / "runs").exists(), "a dry run writes nothing"

    # A sweep's own key is swept with a single value too.
    asked = ["train", "-m", *words, "+hydra.sweeper.params.seed=2", "optim.lr=1e-4,2e-4"]
    assert call(*asked, monkeypatch=monkeypatch) == 0
    assert "2 of 2 jobs finished" in capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    first = manifests(folder)
    assert sorted(first) == ["lr-0.0001/seed-2", "lr-0.0002/seed-2"]
    assert all(one["state"] == "finished" for one in first.values())
    log = folder / "logs" / "lr-0.0001" / "seed-2.log"
    assert first["lr-0.0001/seed-2"]["log"] == str(log) and "run " in log.read_text()

    assert call(*asked, monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().out
    assert "2 jobs, 0 to run (2 finished)" in said and "2 of 2 jobs finished" in said
    assert manifests(folder) == first, "nothing was run or written again"

    by_hand = ["train", *words, "seed=2", "optim.lr=1e-4", f"output.dir={tmp_path}/by_hand"]
    assert call(*by_hand, monkeypatch=monkeypatch) == 0
    alone = json.loads((tmp_path / "by_hand" / "manifest.json").read_text())
    for key in ("weights_digest", "content", "code"):
        assert alone[key] == first["lr-0.0001/seed-2"][key]

    assert call("runs", str(tmp_path / "runs"), monkeypatch=monkeypatch) == 0
    assert f"sweep {folder}: 2 jobs: 2 finished" in capsys.readouterr().out


# Each of its three jobs is a process of its own, as a sweep starts them.
def test_more_seeds_are_added_when_asked_and_other_settings_never(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "question.yaml").write_text(
        textwrap.dedent("""\
        # Does it?
        defaults: [config, _self_]
        hydra:
          mode: MULTIRUN
          sweeper:
            params:
              seed: 1,2
        """)
    )
    chosen = ["train", "--config-dir", f"{tmp_path}/sweeps", "--config-name", "question", *words]
    assert call(*chosen, monkeypatch=monkeypatch) == 0
    folder = tmp_path / "runs" / "question"
    assert sorted(manifests(folder)) == ["seed-1", "seed-2"]
    capsys.readouterr()
    for more, reason in (
        ("seed=1,2,3", "EXTEND=1"),
        ("optim.lr=1e-5", "holds an older sweep"),
        ("hydra.sweeper.rerun=all", "choose one of none, failed"),
    ):
        assert call(*chosen, more, monkeypatch=monkeypatch) == 2
        assert reason in capsys.readouterr().err
    assert call(*chosen, "seed=1", monkeypatch=monkeypatch) == 0
    assert "1 job, 0 to run (1 finished)" in capsys.readouterr().out, "a part of it is no mixture"
    added = ["seed=1,2,3", "hydra.sweeper.extend=true"]
    assert call(*chosen, *added, monkeypatch=monkeypatch) == 0
    assert "3 of 3 jobs finished" in capsys.readouterr().out
    record = json.loads((folder / "sweep.json").read_text())
    assert sorted(record["jobs"]) == ["seed-1", "seed-2", "seed-3"]

    edit_manifest(folder / "seed-2", code="of yesterday")
    assert call(*chosen, monkeypatch=monkeypatch) == 2
    assert "1 of 2 jobs were run by other code" in capsys.readouterr().err
    assert call(*chosen, "hydra.sweeper.other_code=keep", monkeypatch=monkeypatch) == 0


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def marked(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A sweep of three jobs whose rewards fail, kill or dawdle where a file in tmp_path says so."""
    (tmp_path / "marked_reward.py").write_text(REWARD)
    monkeypatch.chdir(tmp_path)
    own = [text for text in words if not text.startswith("reward=")]
    reward = ["reward=function", "reward.path=marked_reward.score", "reward.on_error=stop"]
    return ["train", "-m", *own, *reward, "+reward.arguments.which=1,2,3"]


def states(root: Path) -> dict[str, str]:
    return {run.name.split("/")[-1]: run.state for run in list_runs(root)}


# Five jobs, each in a process of its own, which is what fails here.
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("launcher", names(LAUNCHERS, ["local"]))
def test_jobs_that_fail_or_are_killed_sink_no_other_and_go_on_when_asked(
    marked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    launcher: str,
) -> None:
    asked = [*marked, *LAUNCHERS[launcher]]
    (tmp_path / "fail-1").touch()
    (tmp_path / "kill-2").touch()
    assert call(*asked, monkeypatch=monkeypatch) == 1
    captured = capsys.readouterr()
    assert "1 of 3 jobs finished" in captured.out
    assert "which-1: exit code 1: " in captured.out
    assert "marked_reward.score failed (RuntimeError: no reward today)" in captured.out
    assert "which-2: killed by SIGKILL" in captured.out
    assert "which-1.log" in captured.out and "RERUN=failed" in captured.err
    expected = {"which-1": "failed", "which-2": "died", "which-3": "finished"}
    assert states(tmp_path / "runs") == expected

    for mark in ("fail-1", "kill-2"):
        (tmp_path / mark).unlink()
    assert call(*asked, monkeypatch=monkeypatch) == 1
    captured = capsys.readouterr()
    assert "3 jobs, 1 to run (1 died, 1 failed, 1 finished)" in captured.out
    assert "failed before, and was not run again" in captured.out
    assert states(tmp_path / "runs") == expected | {"which-2": "finished"}
    assert call(*asked, "hydra.sweeper.rerun=failed", monkeypatch=monkeypatch) == 0
    assert set(states(tmp_path / "runs").values()) == {"finished"}
    assert (tmp_path / "threads-3").read_text() == "1", "libraries are told a job's own threads"


def test_a_number_of_threads_that_is_set_to_nothing_is_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in zip((*THREADS, "TOKENIZERS_PARALLELISM"), ("", "7", "", ""), strict=True):
        monkeypatch.setenv(name, value)
    pin(3)
    assert [os.environ[name] for name in THREADS] == ["3", "7", "3"]


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("launcher", list(LAUNCHERS))
def test_a_sweep_that_is_stopped_saves_its_jobs_and_ends_with_the_same_bits(
    marked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    """Killed outright, the sweep takes its jobs with it too, and they save their state as well."""
    asked = [*marked, "run.updates=8", "checkpoint.rounds=1000"]
    for number, chosen, sent, code in (
        (1, launcher, signal.SIGTERM, 75),
        (2, "local", signal.SIGINT, 130),
    ):
        slow = slowed(tmp_path, number)
        sweep = door(tmp_path / f"door-{number}", *asked, *LAUNCHERS[chosen])
        wait_until(partial(has_begun, tmp_path, number), LIMIT)
        sweep.send_signal(sent)
        ended, said = sweep.ended()
        assert ended == code, said
        wait_until(partial(is_stopped, tmp_path, number), LIMIT)
        assert f"which-{number + 1}" not in states(tmp_path), "no other was begun"
        slow.unlink()
    killed_outright(asked, tmp_path, 3)
    assert call(*asked, monkeypatch=monkeypatch) == 0
    undisturbed = [text for text in asked if not text.startswith("output.root")]
    assert call(*undisturbed, "output.root=undisturbed", monkeypatch=monkeypatch) == 0
    digests = [
        {
            name.split("/")[-1]: one["weights_digest"]
            for name, one in manifests(tmp_path / at).items()
        }
        for at in ("runs", "undisturbed")
    ]
    assert digests[0] == digests[1] and len(digests[0]) == 3


def slowed(root: Path, number: int, seconds: float = 0.25) -> Path:
    """Let a job of `marked` dawdle over every sample while the file exists."""
    path = root / f"slow-{number}"
    path.write_text(str(seconds))
    return path


def killed_outright(asked: list[str], root: Path, number: int) -> None:
    """The sweep and its own server of processes come to an end as a user's would."""
    slow = slowed(root, number)
    words = [sys.executable, "-m", "rlhf_lab.cli.main", *asked, "launcher=local"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sweep:
        wait_until(partial(has_begun, root, number), LIMIT)
        sweep.kill()
        assert sweep.wait(LIMIT) == -signal.SIGKILL
    wait_until(partial(is_stopped, root, number), LIMIT)
    slow.unlink()


def has_begun(root: Path, number: int) -> bool:
    """Whether a job of `marked` has done a round."""
    return any(path.read_bytes() for path in root.rglob(f"which-{number}/metrics.jsonl"))


def is_stopped(root: Path, number: int) -> bool:
    return states(root)[f"which-{number}"] == "stopped"


@pytest.mark.slow
@pytest.mark.usefixtures("processes")
def test_two_launchers_share_the_jobs_of_a_sweep(marked: list[str], tmp_path: Path) -> None:
    for number in (1, 2, 3):
        slowed(tmp_path, number, 0.05)
    asked = [*marked, "run.updates=8"]
    both = [door(tmp_path / f"door-{number}", *asked) for number in (1, 2)]
    assert [launcher.ended() for launcher in both] == [(0, ""), (0, "")]
    found = manifests(tmp_path / "runs")
    assert len(found) == 3
    for name, manifest in found.items():
        assert manifest["state"] == "finished" and "resumed" not in manifest, name
        log = Path(manifest["log"]).read_text().splitlines()
        assert sum(line.startswith("run ") for line in log) == 1, "started once"


def test_a_sweep_that_cannot_write_says_so_before_anything_is_run(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    assert call(*swept(words), monkeypatch=monkeypatch) == 2
    assert "cannot be created (Not a directory)" in capsys.readouterr().err


def test_a_sweep_may_give_what_no_run_can_do_without(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = "model.path=somewhere,elsewhere"
    asked = ["train", "-m", *words, "model=pretrained", paths, "hydra.sweeper.dry=true"]
    assert call(*asked, monkeypatch=monkeypatch) == 0, "the shared settings alone are no run"
    assert "2 jobs, 2 to run" in capsys.readouterr().out


def test_commands_that_make_no_runs_are_swept_as_hydra_does(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "cache"
    asked = ["stages", "-m", *words, f"output.cache={own}", "seed=71,72"]
    assert call(*asked, monkeypatch=monkeypatch) == 0
    assert len([path for path in (own / "sft").iterdir() if path.name[0] != "."]) == 2


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("seed", "1,1", "has 1 twice"),
        ("seed", "", "seed="),
        ("seed", "range(1,1)", "has no value"),
        ("run.pases", "1,2", "run.pases"),
        ("optim.lr", "interval(1e-5,1e-3)", "search space"),
        ("output.dir", "somewhere", "would both write to somewhere"),
        ("run.group_size", "1,2", "in the job group_size-1"),
    ],
)
def test_a_grid_that_cannot_be_is_refused_before_anything_is_written(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    reason: str,
) -> None:
    options = [] if name == "seed" else ["seed=1,2"]
    assert call("train", "-m", *words, *options, f"{name}={value}", monkeypatch=monkeypatch) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
