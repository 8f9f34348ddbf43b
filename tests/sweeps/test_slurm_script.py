"""The Slurm script of `rlhf-lab launch`, run by bash with stand-ins for Slurm's commands."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlhf_lab.cli import launch
from rlhf_lab.experiment.checks import check
from rlhf_lab.experiment.config import typed
from rlhf_lab.experiment.layout import parsed
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.launchers.slurm_script import JOB_PORTS, SlurmWishes, slurm_script
from rlhf_lab.sweeps.launchers.torchrun import Wishes
from rlhf_lab.types.errors import UserError
from tests.support.composed import composed

ON_GPUS = Wishes()
# A step that notes its words and its run, waits until all have begun, and ends as a file says.
STEP = """
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
    programs.mkdir()
    for name, body in {"scontrol": 'printf "alpha\\nbeta\\n"', "srun": STEP}.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
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
    layout: str = "2x2:2+2", *overrides: str, wishes: Wishes = ON_GPUS, **slurm: object
) -> str:
    return slurm_script(
        parsed(layout),
        JOB_PORTS,
        overrides,
        wishes,
        SlurmWishes(**slurm),  # type: ignore[arg-type]
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


def test_a_lost_daemon_ends_the_job(tmp_path: Path) -> None:
    script = script_of("1x1:1+0", "mode=async", wishes=Wishes(has_mps=True))
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
    assert launch.COMMAND.run([*words, "--slurm"], Console(quiet=True)) == 0
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
        launch.COMMAND.run(["layout=1x1:1+0", *words], Console(quiet=True))
