"""Runs over the two hosts of the test cluster: as jobs of Slurm, and with a cable that is cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.rollout.generators.vllm.http import SERVER_KEY
from tests.slurm.test_slurm import ENVIRONMENT, TINY, TRAIN

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
HOSTS = Path(__file__).with_name("hosts.sh")
STAND_IN = ROOT / "tests" / "support" / "vllm_of_transformers"
LAB = TRAIN[:-1]
# With `rlhf-lab` and `torchrun` of this Python, and another program in the place of vLLM's server.
GIVEN = {
    **ENVIRONMENT,
    SERVER_KEY: "a key of the test",
    "PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}",
    "PYTHONPATH": f"{STAND_IN}:{os.environ.get('PYTHONPATH', '')}:{ROOT}",
}
PORT = 8100
Start = Callable[..., subprocess.Popen[bytes]]


def manifest(run: Path) -> Any:
    return json.loads((run / "manifest.json").read_bytes())


def rounds(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def until(found: Callable[[], Any], log: Path, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end, f"not within {seconds} s:\n{log.read_text()}"
        time.sleep(0.2)


def job(folder: Path, partition: str, *words: str) -> str:
    """The log of a job of Slurm, which runs a printed script to its end."""
    made = subprocess.run(
        [*LAB, "launch", "--slurm", "--cpu", *TINY, f"output.cache={folder / 'cache'}", *words],
        env=GIVEN,
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    (folder / "job.sh").write_text(made.stdout)
    log = folder / "log"
    submit = ["sbatch", "--wait", f"--partition={partition}", f"--output={log}", "job.sh"]
    done = subprocess.run(submit, env=GIVEN, check=False, capture_output=True, cwd=folder)
    assert done.returncode == 0, log.read_text()
    return log.read_text()


def test_two_nodes_of_a_job_train_to_the_bits_of_one(tmp_path: Path) -> None:
    """Ranks that meet over the network of the hosts."""
    settings = ["engine=fsdp", "run.updates=20"]
    digests = []
    for partition, layout in (("pair", "2x1:2+0"), ("low", "1x2:2+0")):
        run = tmp_path / partition
        job(tmp_path, partition, f"layout={layout}", *settings, f"output.dir={run}")
        assert manifest(run)["state"] == "finished"
        digests.append(manifest(run)["weights_digest"])
    assert digests[0] == digests[1]


def test_one_node_of_a_job_trains_on_samples_of_the_other(tmp_path: Path) -> None:
    run, weights = tmp_path / "run", tmp_path / "weights"
    settings = ["mode=async", "run.updates=10", f"generator.weights_folder={weights}"]
    log = job(tmp_path, "pair", "layout=2x1:1+1", *settings, f"output.dir={run}")
    assert manifest(run)["state"] == "finished", log
    assert "- http://host2:" in (run / "config.yaml").read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(host, log, *words): rlhf-lab in the background on a host. Every cable is in at the end,
    and every process has ended."""
    begun: list[subprocess.Popen[bytes]] = []

    def started(host: str, log: Path, *words: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            command = [str(HOSTS), "on", host, *LAB, *words]
            begun.append(subprocess.Popen(command, stdout=file, stderr=file, env=GIVEN))
        return begun[-1]

    yield started
    subprocess.run([HOSTS, "join", "host2"], check=True)
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_server_behind_a_cut_link_is_named_and_the_run_resumes(
    tmp_path: Path, start: Start, mode: str
) -> None:
    """A host that is cut off sends no packet, also none that ends a connection."""
    run, log = tmp_path / "run", tmp_path / "log"
    shared = [*TINY, f"output.cache={tmp_path / 'cache'}", "generator=vllm"]
    listen = [f"generator.port={PORT}", "generator.host=0.0.0.0"]
    start("host2", tmp_path / "server", "serve", *shared, *listen)
    reach = [f"generator.urls=[http://host2:{PORT}]", "generator.connect_seconds=300"]
    reach += [f"generator.weights_folder={tmp_path / 'weights'}"]
    settings = [f"mode={mode}", "run.updates=100000", f"output.dir={run}"]
    trainer = start("host1", log, "train", *shared, *reach, *settings)
    until(lambda: rounds(run) >= 3 or trainer.poll() is not None, log)

    subprocess.run([HOSTS, "cut", "host2"], check=True)
    cut_at = time.monotonic()
    until(lambda: trainer.poll() is not None, log)
    sys.stdout.write(f"ended {time.monotonic() - cut_at:.1f} s after the cut\n")
    last = log.read_text().splitlines()[-1]
    assert trainer.returncode == 1, last
    assert f"http://host2:{PORT}" in last
    assert manifest(run)["state"] == "failed"
    kept = rounds(run)
    assert str(kept) in [str(int(path.name)) for path in (run / "checkpoints").iterdir()]

    subprocess.run([HOSTS, "join", "host2"], check=True)
    again = start("host1", log, "resume", str(run), f"checkpoint.pause_round={kept + 2}")
    assert again.wait(300) == 0, log.read_text()
    assert rounds(run) == kept + 2
