"""Several processes train as one does: real processes, joined by gloo on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.training.engines.options import SingleEngineOptions
from tests.support.engine_cases import SPREAD, batch_of, engine, losses, restore, saved, updates
from tests.support.examples import call

pytestmark = [pytest.mark.timeout(1500), pytest.mark.usefixtures("processes")]

ROOT = Path(__file__).parents[2]
# Two processes that share a core with others take turns in waiting for each other.
LIMIT = 1200
ENGINES = {
    "fsdp": ["fsdp", "fsdp-blocks"],
    "deepspeed": ["zero2", "zero3"],
}
# For `make test-slow`: other ways to read rows, and engines that split less.
OTHERS = {"fsdp": ["fsdp-causal"], "deepspeed": ["zero0", "zero1", "zero3-blocks"]}


def torchrun(arguments: Sequence[str], processes: int = 2) -> subprocess.Popen[str]:
    """Start a command in several processes of this machine, with a free port of their own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, f"--nproc-per-node={processes}", *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def lab(*arguments: str, folder: Path, cache: Path, processes: int = 2) -> subprocess.Popen[str]:
    """`rlhf-lab ARGUMENTS` on a tiny run in several processes."""
    given = ["debug=tiny", "eval=none", "eval.snapshots=0", "engine=fsdp", "checkpoint=rounds"]
    given += ["checkpoint.rounds=1", f"output.cache={cache}", f"output.dir={folder}"]
    return torchrun(["-m", "rlhf_lab.cli.main", *arguments, *given], processes)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors. One that does not end is ended, so that nothing is left."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still at work after {LIMIT} s: {out}\n{err}") from None
    return process.returncode, out, err


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What engine=single does in one piece: two updates, a checkpoint, and a third update."""
    folder = tmp_path_factory.mktemp("engines")
    for algo in SPREAD:
        alone = engine(SingleEngineOptions(micro_rows=64, logit_tokens=0), algo)
        first = updates(alone, algo, [0, 1])
        held = saved(alone)
        third = updates(alone, algo, [2])
        told = {
            **held,
            "losses": losses([*first, *third]),
            "rows": dict(third[0].rows),
            "norms": [done.metrics["grad_norm"] for done in first],
        }
        torch.save(told, folder / f"single-{algo}.pt")
    return folder


@pytest.fixture(scope="module")
def told(single: Path) -> tuple[str, str]:
    """The same in two processes, by every engine that there is, until one of them fails. All in one
    go: processes import for longer than they train. Returns output and errors."""
    present = [engines for kind, engines in ENGINES.items() if is_installed(kind)]
    return trained(single, [name for engines in present for name in engines])


def trained(single: Path, engines: Sequence[str]) -> tuple[str, str]:
    """Output and errors of two processes that train by these engines."""
    code, out, err = ended(torchrun(["-m", "tests.support.engine_worker", str(single), *engines]))
    assert code != 0, err
    return out, err


def is_installed(kind: str) -> bool:
    """Whether the package of a kind of engines is there."""
    return kind == "fsdp" or find_spec("deepspeed") is not None


@pytest.mark.parametrize("kind", list(ENGINES))
def test_two_processes_train_as_one_does(single: Path, told: tuple[str, str], kind: str) -> None:
    """Losses, norms and the measures of every row, in the rows' order; a checkpoint of one process
    goes on in two, and one of two in one; other weights can be read without a trace."""
    if not is_installed(kind):
        pytest.skip("needs rlhf-lab[deepspeed]")
    all_agree(single, ENGINES[kind], told)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(OTHERS))
def test_two_processes_train_as_one_does_by_every_engine(single: Path, kind: str) -> None:
    if not is_installed(kind):
        pytest.skip("needs rlhf-lab[deepspeed]")
    all_agree(single, OTHERS[kind], trained(single, OTHERS[kind]))


def all_agree(single: Path, engines: Sequence[str], told: tuple[str, str]) -> None:
    """What two processes did by these engines is what one does, with every algorithm."""
    for algo in SPREAD:
        alone: dict[str, Any] = torch.load(single / f"single-{algo}.pt")
        for name in engines:
            assert (single / f"{name}-{algo}.pt").exists(), told
            agrees(name, algo, alone, torch.load(single / f"{name}-{algo}.pt"))


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
    entropy_BT = goes_on.entropy(batch_of(goes_on, algo, 2), goes_on.weights(2))
    assert torch.allclose(told["entropy"], entropy_BT, atol=1e-4), (name, algo)
    third = losses(updates(goes_on, algo, [2]))
    assert third == pytest.approx(alone["losses"][2:], abs=1e-5), (name, algo)
    present, apart, again = told["logps"]
    assert torch.equal(present, again)
    assert not torch.allclose(present, apart, atol=1e-2)
    assert told["is_untouched"]
    assert told["peak"]["resident_bytes"] > 10**8


def test_the_error_of_another_process_ends_the_lead_with_its_traceback(
    told: tuple[str, str],
) -> None:
    out, err = told
    assert "process 1 of 2 failed" in out, err
    assert "ValueError: broken on purpose" in out
    assert "in update" in out, "a traceback"


LEAVING = """
import atexit, os, sys, threading
import torch.distributed as dist
from rlhf_lab.cli.endings import end_rank
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


def test_the_main_rank_ends_whole_whatever_threads_there_are(tmp_path: Path) -> None:
    """With a count every millisecond, 7 of 32 processes were in the store, or in gloo, while Python
    ended, and aborted."""
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


@pytest.mark.slow
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
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert call(*arguments, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in parts), told
