"""Sweeps on a real Slurm (tests/slurm/cluster.sh): what becomes of jobs that it ends early."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

TRAIN = [sys.executable, "-m", "rlhf_lab.cli.main", "train"]
TINY = ["task=arithmetic", "debug=tiny", "seed=1"]
ON_SLURM = ["launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.gpus_per_node=null"]
BETAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
# One thread, as each job has one core: sums keep their order.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


# Longer than any limit while a file says so, which is no setting of the run.
DAWDLING = """
import pathlib, time

def score(prompt, completion, *, reference, hidden, finished):
    if completion != reference and pathlib.Path(__file__).with_name("dawdle").exists():
        time.sleep(0.5)
    return len(completion) / 10
"""
StartSweep = Callable[..., "Sweep"]


@pytest.fixture
def start_sweep(tmp_path: Path) -> Iterator[StartSweep]:
    """Starts sweeps on a cluster that answers, which is left without jobs."""
    ping = subprocess.run(["scontrol", "ping"], capture_output=True, text=True, check=False)
    assert ping.returncode == 0, f"no Slurm answers ({ping.stderr}): use `make test-slurm`"
    begun: list[Sweep] = []

    def start(*overrides: str, within: Sequence[str] = ()) -> Sweep:
        begun.append(Sweep(tmp_path, overrides, within))
        return begun[-1]

    yield start
    subprocess.run(["scancel", "--user=root"], check=True)
    for sweep in begun:
        sweep.process.kill()
        sweep.process.wait()


class Sweep:
    """A sweep that goes on in the background."""

    def __init__(self, folder: Path, overrides: Sequence[str], within: Sequence[str] = ()) -> None:
        self.root = folder / "runs"
        self._said = folder / "said.txt"
        self._cache = f"output.cache={folder / 'cache'}"
        self._shared = [*TINY, *overrides]
        with self._said.open("wb") as file:
            self.process = subprocess.Popen(
                [
                    *(*within, *TRAIN, "-m", *self._shared),
                    *(self._cache, f"output.root={self.root}", *ON_SLURM),
                ],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=ENVIRONMENT,
                cwd=folder,
            )

    def said(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")

    def runs(self) -> dict[str, dict[str, Any]]:
        """Manifests by the name of the job."""
        found = {path.parent.name: path for path in self.root.glob("*/*/manifest.json")}
        return {name: json.loads(path.read_bytes()) for name, path in found.items()}

    def rounds(self, name: str) -> int:
        (path,) = self.root.glob(f"*/{name}/metrics.jsonl")
        return path.read_bytes().count(b"\n")

    def busy(self) -> list[str]:
        """Jobs in the middle of their training."""
        states = {name: manifest["state"] for name, manifest in self.runs().items()}
        begun = [name for name, state in states.items() if state == "running"]
        return [n for n in begun if list(self.root.glob(f"*/{n}/metrics.jsonl"))]

    def undisturbed(self, folder: Path, *overrides: str) -> str:
        """The digest that a run of the same settings has without a cluster."""
        place = folder / "undisturbed"
        settings = [text for text in self._shared if not text.startswith(("algo.beta", "hydra."))]
        words = [*settings, *overrides, self._cache, f"output.dir={place}"]
        subprocess.run(
            [*TRAIN, *words], env=ENVIRONMENT, check=True, capture_output=True, cwd=folder
        )
        digest: str = json.loads((place / "manifest.json").read_bytes())["weights_digest"]
        return digest


def tell(text: str) -> None:
    """A measured number, seen with pytest -s."""
    sys.stdout.write(f"{text}\n")


def waited(sweep: Sweep, seconds: float, found: Callable[[], Any]) -> Any:
    """What is found as soon as it is something."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := found():
            return value
        assert sweep.process.poll() is None, f"the sweep ended early:\n{sweep.said()}"
        time.sleep(0.2)
    pytest.fail(f"not within {seconds} s:\n{sweep.said()}")


def array_number(job: str) -> str:
    """A job's number in its array, 12_3, which is what scancel takes."""
    queue = subprocess.run(
        ["squeue", "--noheader", "--format=%A %i"], capture_output=True, text=True, check=True
    )
    return dict(line.split() for line in queue.stdout.splitlines())[job]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_preempted_job_goes_on_and_lost_jobs_are_told_while_the_others_finish(
    tmp_path: Path, start_sweep: StartSweep
) -> None:
    betas = f"algo.beta={','.join(map(str, BETAS))}"
    sweep = start_sweep("run.updates=300", betas)
    waited(sweep, 120, lambda: len(sweep.busy()) >= 2)

    # An urgent job takes the place of one of the two.
    asked_at = time.monotonic()
    urgent = ["sbatch", "--partition=urgent", "--ntasks=1", "--output=/dev/null", "--wrap=sleep 1"]
    subprocess.run(urgent, check=True)
    stopped = [n for n, m in sweep.runs().items() if m["state"] == "stopped"]
    assert not stopped
    (preempted,) = waited(
        sweep, 60, lambda: [n for n, m in sweep.runs().items() if m["state"] == "stopped"]
    )
    tell(f"checkpoint {time.monotonic() - asked_at:.1f} s after the urgent job came")
    stopped_at, kept = time.monotonic(), sweep.rounds(preempted)

    # Everything of another job's step is killed.
    (killed, *_) = waited(sweep, 60, lambda: [n for n in sweep.busy() if n != preempted])
    process = sweep.runs()[killed]["process"]
    killed_at = time.monotonic()
    server = parent_of(process["pid"])
    for pid in (parent_of(server), server, process["pid"]):
        os.kill(pid, signal.SIGKILL)
    waited(sweep, 30, lambda: "is FAILED" in sweep.said())
    tell(f"told of the killed job after {time.monotonic() - killed_at:.1f} s")

    # A third one is cancelled.
    touched = {preempted, killed}
    (cancelled, *_) = waited(sweep, 120, lambda: [n for n in sweep.busy() if n not in touched])
    cancelled_at = time.monotonic()
    subprocess.run(["scancel", array_number(sweep.runs()[cancelled]["process"]["job"])], check=True)
    waited(sweep, 30, lambda: "is CANCELLED" in sweep.said())
    tell(f"told of the cancelled job after {time.monotonic() - cancelled_at:.1f} s")

    waited(sweep, 400, lambda: sweep.runs()[preempted]["state"] == "running")
    waited(sweep, 60, lambda: sweep.rounds(preempted) > kept)
    tell(f"training again {time.monotonic() - stopped_at:.1f} s after the checkpoint")
    assert sweep.process.wait(300) == 1, sweep.said()
    tell(sweep.said())

    runs = sweep.runs()
    assert len(runs) == len(BETAS)
    lost = {killed, cancelled}
    assert {n for n, m in runs.items() if m["state"] == "finished"} == set(runs) - lost
    assert runs[cancelled]["state"] == "stopped", "scancel leaves time to save the state"
    assert [end["after"] for end in runs[preempted]["resumed"]] == ["stopped"]
    assert kept > 0, "or nothing was resumed"
    beta = preempted.split("-")[1]
    assert runs[preempted]["weights_digest"] == sweep.undisturbed(tmp_path, f"algo.beta={beta}")


def test_a_job_at_its_time_limit_saves_its_state_and_goes_on_in_a_new_one(
    tmp_path: Path, start_sweep: StartSweep
) -> None:
    # Slurm's clock for limits counts in minutes, and its notice comes up to one of them early.
    limits = ["hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=25"]
    (tmp_path / "dawdling.py").write_text(DAWDLING)
    (tmp_path / "dawdle").touch()
    reward = ["reward=function", "reward.path=dawdling.score"]
    sweep = start_sweep("run.updates=400", "algo.beta=0.1", *reward, *limits)
    waited(sweep, 300, lambda: any("resumed" in run for run in sweep.runs().values()))
    (tmp_path / "dawdle").unlink()
    assert sweep.process.wait(600) == 0, sweep.said()
    (run,) = sweep.runs().values()
    assert run["state"] == "finished"
    assert {end["after"] for end in run["resumed"]} == {"stopped"}
    assert run["weights_digest"] == sweep.undisturbed(tmp_path, "algo.beta=0.1")


def test_two_trainers_of_a_layout_save_their_state_and_go_on(
    tmp_path: Path, start_sweep: StartSweep
) -> None:
    layout = ["engine=fsdp", "hydra.sweeper.layout=1x2:2+0", "hydra.launcher.signal_delay_s=60"]
    sweep = start_sweep("run.updates=200", "algo.beta=0.1", *layout)
    (name,) = waited(sweep, 180, sweep.busy)
    waited(sweep, 60, lambda: sweep.rounds(name) > 5)
    asked_at = time.monotonic()
    job = sweep.runs()[name]["process"]["job"]
    subprocess.run(["scancel", "--signal=USR2", job], check=True)
    waited(sweep, 60, lambda: sweep.runs()[name]["state"] == "stopped")
    tell(f"checkpoint of two trainers after {time.monotonic() - asked_at:.1f} s")
    waited(sweep, 120, lambda: sweep.runs()[name]["state"] == "running")
    tell(f"started again after {time.monotonic() - asked_at:.1f} s")
    assert sweep.process.wait(300) == 0, sweep.said()
    run = sweep.runs()[name]
    assert run["state"] == "finished"
    assert [end["after"] for end in run["resumed"]] == ["stopped"]
    assert sweep.rounds(name) == 200


def test_a_sweep_that_is_started_within_an_allocation_is_as_any_other(
    tmp_path: Path, start_sweep: StartSweep
) -> None:
    """The memory of the allocation is that of its node, that of the jobs is of their processors."""
    allocation = ["salloc", "--ntasks=1", "--cpus-per-task=1", "--mem=600", "--time=20"]
    sweep = start_sweep("run.updates=20", "algo.beta=0.1", within=allocation)
    assert sweep.process.wait(600) == 0, sweep.said()
    assert [run["state"] for run in sweep.runs().values()] == ["finished"]


def test_more_jobs_than_the_account_may_submit_are_refused_before_the_stages(
    tmp_path: Path, start_sweep: StartSweep
) -> None:
    modify = ["sacctmgr", "--immediate", "modify", "user", "root", "set"]
    subprocess.run([*modify, "MaxSubmitJobs=2"], check=True, capture_output=True)
    try:
        sweep = start_sweep("algo.beta=0.1,0.2,0.3")
        assert sweep.process.wait(300) == 2, sweep.said()
    finally:
        subprocess.run([*modify, "MaxSubmitJobs=-1"], check=True, capture_output=True)
    last = sweep.said().splitlines()[-1]
    assert "hydra.launcher.account=root" in last and "2 jobs" in last
    assert not (tmp_path / "cache").exists()


def test_why_a_job_waits_is_shown_with_the_key(tmp_path: Path, start_sweep: StartSweep) -> None:
    sweep = start_sweep("algo.beta=0.1", "hydra.launcher.partition=short")
    waited(sweep, 300, lambda: "PartitionTimeLimit" in sweep.said())
    assert "hydra.launcher.timeout_min=1440 or partition=short" in sweep.said()


def test_a_lost_step_ends_the_job_of_a_printed_script(tmp_path: Path) -> None:
    """The script of `rlhf-lab launch --slurm` as Slurm runs it, beside a server that ends."""
    words = ["launch", "layout=1x2:2+0", "--slurm", "--cpu", "engine=fsdp", "run.updates=100000"]
    made = subprocess.run(
        [*TRAIN[:-1], *words, *TINY, f"output.dir={tmp_path / 'run'}"],
        env=ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    server = 'start server0.0 0 bash -c "sleep 5; exit 9"'
    script = made.stdout.replace("\nstart trainer0", f"\n{server}\nstart trainer0")
    (tmp_path / "job.sh").write_text(script)
    path = f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}"
    done = subprocess.run(
        ["sbatch", "--wait", f"--output={tmp_path / 'log'}", "job.sh"],
        env={**ENVIRONMENT, "PATH": path},
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    log = (tmp_path / "log").read_text()
    assert done.returncode == 9, log
    host = socket.gethostname().partition(".")[0]
    assert f"server0.0 on {host} ended with exit code 9: the job ends" in log
