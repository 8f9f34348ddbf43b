"""The Slurm script of `rlhf-lab launch`, run by bash with stand-ins for Slurm's commands."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlhf_lab.cli import launch
from rlhf_lab.experiment.config.layout import parsed
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.rollout.ports import free_port
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers.slurm_script import JOB_PORTS, SlurmRequest, slurm_script
from rlhf_lab.sweeps.launchers.torchrun import Ports, ResourceRequest
from rlhf_lab.types.errors import UserError
from tests.support.composed import composed

ON_GPUS = ResourceRequest()
# A step that notes its words and its run, waits until all have begun, and ends as a file says.
STEP = """
echo "$RLHF_LAB_SERVER_KEY" >> "$FOLDER/keys"
echo "$RLHF_LAB_RUN_ID ${CUDA_MPS_PIPE_DIRECTORY:-} $*" >> "$FOLDER/steps"
until [ "$(wc -l < "$FOLDER/steps")" -ge "$STEPS" ]; do sleep 0.02; done
for word in "$@"; do case "$word" in serve) kind=server;; torchrun) kind=trainer;; esac; done
case "$*" in *mps-control*) kind=daemon;; esac
[ ! -e "$FOLDER/$kind" ] || exit "$(cat "$FOLDER/$kind")"
exec sleep 300
"""


def script_run(
    folder: Path, script: str, steps: int, ends: dict[str, int], job: int = 12
) -> tuple[int, str, list[str]]:
    """Exit code, errors and steps of a script. ends: exit codes of the kinds of steps that end."""
    programs = folder / "bin"
    write_programs(programs, {"scontrol": 'printf "alpha\\nbeta\\n"', "srun": STEP})
    for kind, code in ends.items():
        (folder / kind).write_text(str(code))
    done = subprocess.run(
        ["bash", "-c", script],
        env={
            "PATH": f"{programs}:/usr/bin:/bin",
            "SLURM_JOB_NODELIST": "x",
            "SLURM_JOB_ID": str(job),
            "FOLDER": str(folder),
            "STEPS": str(steps),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stderr, (folder / "steps").read_text().splitlines()


def script_of(
    layout: str = "2x2:2+2", *overrides: str, wishes: ResourceRequest = ON_GPUS, **slurm: object
) -> str:
    return slurm_script(
        parsed(layout),
        JOB_PORTS,
        overrides,
        wishes,
        SlurmRequest(**slurm),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("ends", "code", "complaint"),
    [
        ({"server": 3}, 3, "server1.0 on beta ended with exit code 3"),
        ({"server": 0}, 1, "server1.0 on beta ended with exit code 0"),
        ({"trainer": 5}, 5, "trainer0 on alpha ended with exit code 5"),
        ({"trainer": 0}, 0, ""),
    ],
)
def test_whoever_is_lost_ends_the_job_and_is_named(
    tmp_path: Path, ends: dict[str, int], code: int, complaint: str
) -> None:
    found, errors, steps = script_run(tmp_path, script_of("2x1:1+1"), 2, ends)
    assert (found, len(steps)) == (code, 2), errors
    assert complaint in errors
    # Both have one key, of the job alone.
    [key] = set((tmp_path / "keys").read_text().splitlines())
    assert re.fullmatch(r"[0-9a-f]{64}", key)


# A step of the real trainers, without the server, which is lost once they have made a round.
LOST = """
words=()
for word in "$@"; do case "$word" in generator*) ;; *) words+=("$word");; esac; done
while [[ ${words[0]} == --* ]]; do words=("${words[@]:1}"); done
[[ $* != *" serve "* ]] || { until [ -s "$RUN/metrics.jsonl" ]; do sleep 0.05; done; exit 3; }
exec "${words[@]}"
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("processes")
def test_trainers_save_their_state_when_a_server_is_lost(tmp_path: Path) -> None:
    """Two ranks under torchrun, which hear of it by the script's signal; the run goes on later."""
    run = tmp_path / "run"
    settings = ["debug=tiny", "mode=async", "run.updates=4000", "engine=fsdp", "eval=none"]
    settings += ["eval.snapshots=0", "checkpoint=rounds", "checkpoint.rounds=4000"]
    settings += [f"output.dir={run}", f"output.cache={tmp_path}/cache"]
    ports = Ports(free_port(), free_port())
    wishes, slurm = ResourceRequest(is_cpu=True), SlurmRequest(grace=300)
    script = slurm_script(parsed("1x3:2+1"), ports, settings, wishes, slurm)
    write_programs(tmp_path / "bin", {"scontrol": "echo 127.0.0.1", "srun": LOST})
    paths = [str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    own = {"RUN": str(run), "SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "12"}
    given = {**os.environ, **own, "PATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", script], env=given, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "server0.0 on 127.0.0.1 ended with exit code 3: the job ends" in done.stderr
    assert json.loads((run / "manifest.json").read_bytes())["state"] == "stopped", done.stderr
    rounds = len((run / "metrics.jsonl").read_text().splitlines())
    assert [int(path.name) for path in (run / "checkpoints").iterdir()] == [rounds]
    again = ["resume", str(run), f"checkpoint.pause_round={rounds + 1}"]
    words = [sys.executable, "-m", "rlhf_lab.cli.main", *again]
    done = subprocess.run(words, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"resumed at round {rounds}" in done.stdout
    assert len((run / "metrics.jsonl").read_text().splitlines()) == rounds + 1


def write_programs(folder: Path, bodies: dict[str, str]) -> None:
    """Stand-ins for Slurm's commands."""
    folder.mkdir()
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)


def test_the_time_for_saving_is_that_which_was_passed() -> None:
    assert "\ngrace=30\n" in script_of()
    assert "\ngrace=600\n" in script_of(grace=600)
    with pytest.raises(UserError, match=r"--grace -1: choose 1 second or more"):
        SlurmRequest(grace=-1)


def test_a_lost_daemon_ends_the_job(tmp_path: Path) -> None:
    script = script_of("1x1:1+0", "mode=async", wishes=ResourceRequest(has_mps=True))
    code, errors, steps = script_run(tmp_path, script, 2, {"daemon": 1})
    assert code == 1
    assert "mps0 on alpha ended" in errors
    assert {step.split()[1] for step in steps} == {"/tmp/rlhf-lab-mps-12"}, "another for each job"


@pytest.mark.parametrize("job", [12, 13])
def test_jobs_have_ports_and_a_run_id_of_their_own(tmp_path: Path, job: int) -> None:
    _, _, steps = script_run(tmp_path, script_of("2x2:2+2"), 3, {"trainer": 0}, job)
    first = 20000 + 64 * job
    assert all(step.startswith(f"{job} ") for step in steps)
    (trainer,) = [step for step in steps if "torchrun" in step]
    assert f"--master-port={first} " in trainer
    assert f"generator.urls=[http://beta:{first + 2},http://beta:{first + 3}]" in trainer
    assert f"generator.nccl_port={first + 1}" in trainer


def overrides_of(step: str, name: str) -> list[str]:
    words = shlex.split(step)
    return words[words.index(name) + 1 :]


@pytest.mark.parametrize("layout", ["1x2:1+1", "2x2:2+2"])
def test_every_command_of_a_printed_script_composes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    """With the hosts and ports that bash fills in."""
    words = [f"layout={layout}", "engine=fsdp", "model=nano_s", "task=tldr_nano", "mode=async"]
    assert launch.LAUNCH.run([*words, "--slurm"], Console(quiet=True)) == 0
    generators = parsed(layout).generators
    _, errors, steps = script_run(tmp_path, capsys.readouterr().out, 1 + generators, {"trainer": 0})
    names = ["train" if "torchrun" in step else "serve" for step in steps]
    assert sorted(names) == ["serve"] * generators + ["train"], errors
    for step, name in zip(steps, names, strict=True):
        check(typed(composed(*overrides_of(step, name))), here=False)


def header(script: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)


def test_a_job_takes_whole_nodes_or_a_share_that_is_enough() -> None:
    first = "--job-name=rlhf_lab --nodes=2 --ntasks-per-node=1"
    assert header(script_of()) == [first, "--exclusive --mem=0", "--gpus-per-node=2"]
    shared = header(script_of(share=True))
    assert shared[1] == "--cpus-per-task=16 --mem=128G"
    assert header(script_of(share=True, cpus=6, memory="9G"))[1] == "--cpus-per-task=6 --mem=9G"


def test_a_shared_node_that_does_not_confine_jobs_is_refused(tmp_path: Path) -> None:
    script = script_of(share=True).replace("set -uo", "CUDA_VISIBLE_DEVICES=4,5\nset -uo")
    (tmp_path / "steps").touch()
    code, errors, steps = script_run(tmp_path, script, 1, {})
    assert (code, steps) == (1, [])
    assert "without --share" in errors


def test_steps_run_in_the_container_and_are_bound_to_no_core(tmp_path: Path) -> None:
    script = script_of("1x1:1+0", image="lab#rlhf:1", mounts="/data:/data")
    (step,) = script_run(tmp_path, script, 1, {"trainer": 0})[2]
    assert f"--container-mounts=/data:/data,{tmp_path}:{tmp_path}" in step
    assert {"--container-image=lab#rlhf:1", "--kill-on-bad-exit=1", "--cpu-bind=none"} <= set(
        shlex.split(step)
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--share"], "--share is for a Slurm job"),
        (["--slurm", "--container-mounts", "a:b"], "without --container-image"),
        (["--slurm", "--mps", "--container-image", "x"], "outside of the container"),
        (["--mps", "--cpu"], "--mps with --cpu"),
    ],
)
def test_wishes_that_go_nowhere_are_refused(words: Sequence[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        launch.LAUNCH.run(["layout=1x1:1+0", *words], Console(quiet=True))
