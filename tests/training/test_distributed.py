"""Several processes train as one does: real processes, joined by gloo on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.runs.signals import TORCHRUN
from rlhf_lab.training.engines.options import SingleEngineOptions
from tests.support.engine_cases import batch_of, engine, losses, restore, updates
from tests.support.engine_worker import GROUPS, engine_acts, fail
from tests.support.examples import call
from tests.support.trained_by_two import PRESENT, cases, trained_by_two
from tests.support.two_ranks import LIMIT, ended, seen_of, torchrun, two_ranks

pytestmark = pytest.mark.timeout(1500)


def lab(*arguments: str, folder: Path, cache: Path, processes: int = 2) -> subprocess.Popen[str]:
    """`rlhf-lab ARGUMENTS` on a tiny run in several processes."""
    given = ["debug=tiny", "eval=none", "eval.snapshots=0", "engine=fsdp", "checkpoint=rounds"]
    given += ["checkpoint.rounds=1", f"output.cache={cache}", f"output.dir={folder}"]
    return torchrun(["-m", "rlhf_lab.cli.main", *arguments, *given], processes)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("act", cases(engine_acts(PRESENT)))
def test_two_processes_train_as_one_does(cache: Path, act: str) -> None:
    """Losses, norms and the measures of every row, in the rows' order; a checkpoint of one process
    goes on in two, and one of two in one; other weights can be read without a trace.

    The first case pays for all: two processes that train by every kind of engine, in one start.
    """
    folder = trained_by_two(cache, act)
    name, _, algo = act.rpartition("-")
    agrees(name, algo, torch.load(folder / f"single-{algo}.pt"), seen_of(folder, act))


def agrees(name: str, algo: str, alone: dict[str, Any], told: dict[str, Any]) -> None:
    """What two processes did is what one does."""
    assert told["losses"] == pytest.approx(alone["losses"], abs=1e-5), (name, algo)
    assert told["restored"] == pytest.approx(alone["losses"][2:], abs=1e-5), (name, algo)
    if not algo.startswith("ppo") or name.startswith("fsdp"):  # DeepSpeed's norm is of both models
        assert told["norms"] == pytest.approx(alone["norms"], rel=1e-4), (name, algo)
    for measure, column in alone["rows"].items():
        assert torch.allclose(told["rows"][measure], column, atol=1e-4), (name, measure)
    assert told["held"]["state"].keys() == alone["state"].keys()
    goes_on = engine(SingleEngineOptions(), algo)
    restore(goes_on, told["held"])
    entropy_BT = goes_on.entropy(batch_of(goes_on, algo, 2, GROUPS), goes_on.weights(2))
    assert torch.allclose(told["entropy"], entropy_BT, atol=1e-4), (name, algo)
    third = losses(updates(goes_on, algo, [2], GROUPS))
    assert third == pytest.approx(alone["losses"][2:], abs=1e-5), (name, algo)
    present, apart, again = told["logps"]
    assert torch.equal(present, again)
    assert not torch.allclose(present, apart, atol=1e-2)
    assert told["is_untouched"]
    assert told["peak"]["resident_bytes"] > 10**8


@pytest.mark.usefixtures("processes")
def test_the_error_of_another_process_ends_the_lead_with_its_traceback(tmp_path: Path) -> None:
    told = two_ranks(tmp_path, fail)
    assert told.codes == (0, 1), told
    assert "process 1 of 2 failed" in told.out, told
    assert "ValueError: broken on purpose" in told.out
    assert "in update" in told.out, "a traceback"


LEAVING = """
import atexit, os, sys, threading
import torch.distributed as dist
from rlhf_lab.cli.exit_codes import end_rank
from rlhf_lab.training.engines.distributed import current, join, leave, main_rank
if os.environ["RANK"] == "0":
    atexit.register(print, "at exit", flush=True)
    threading.Thread(target=lambda: print("thread", flush=True)).start()
    with main_rank("stop"):
        current().liveness.beat = 1e-3
    assert threading.enumerate() == [threading.main_thread()]
    sys.stdout.write("last words")
    end_rank(0)
else:
    processes = join()
    while processes.broadcast_call(None) != "stop":
        pass
    leave(processes, None)
"""


@pytest.mark.usefixtures("processes")
def test_the_main_rank_ends_whole_whatever_threads_there_are(tmp_path: Path) -> None:
    """With a count every millisecond, 7 of 32 processes were in the store, or in gloo, while Python
    ended, and aborted. The one start of torchrun in `make test`: three processes import torch."""
    script = tmp_path / "leaving.py"
    script.write_text(LEAVING)
    code, out, err = ended(torchrun([str(script)]))
    assert code == 0, err
    assert "thread\n" in out and "at exit\n" in out and "last words" in out


def pid_of_follower(launcher: int) -> int:
    """The process of number 1 that torchrun started, once it has joined."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in map(int, children):
        if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{child}/environ").read_bytes():
            return child
    raise AssertionError(f"torchrun has {children}")


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
@pytest.mark.linux
def test_a_run_outlives_the_loss_of_a_process(tmp_path: Path) -> None:
    """Two processes train asynchronously; one is killed, which ends the run; then one process goes
    on to the end. The follower writes nothing and says nothing."""
    run, cache = tmp_path / "run", tmp_path / "cache"
    process = lab("train", "mode=async", "run.updates=60", folder=run, cache=cache)
    until = time.monotonic() + LIMIT
    while len(list((run / "checkpoints").glob("0*"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.1)
    os.kill(pid_of_follower(process.pid), signal.SIGKILL)
    code, out, err = ended(process)
    assert code != 0
    assert out.count(f"run {run}") == 1
    manifest = json.loads((run / "manifest.json").read_bytes())
    assert manifest["state"] == "failed", err
    assert "another process of the run ended without a traceback" in manifest["error"]
    code, out, err = ended(lab("resume", str(run), folder=run, cache=cache, processes=1))
    assert code == 0, err
    assert "resumed at round" in out
    assert json.loads((run / "manifest.json").read_bytes())["state"] == "finished"
    rows = [json.loads(row) for row in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(60))
    assert rows[-1]["lag/rounds_max"] == 1
    assert rows[-1]["timing/peak_resident_bytes"] > 10**8
    assert {path.name for path in tmp_path.iterdir()} == {"run", "cache"}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["train", "engine=single"], ["engine=single with 2 trainers", "engine=fsdp"]),
        (["train", "-m", "seed=1,2"], ["-m with 2 processes", "without torchrun"]),
        (["evaluate", "a", "b"], ["rlhf-lab evaluate RUN RUN with 2", "one run at a time"]),
        (["label"], ["rlhf-lab label with 2 processes", "without torchrun"]),
        (["train", "engine=fsdp", "run.passes=0"], ["run.passes=0"]),
    ],
)
def test_what_several_processes_cannot_do_is_refused_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    parts: list[str],
) -> None:
    torchrun = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", TORCHRUN: "x"}
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    assert call(*arguments, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in parts), told
