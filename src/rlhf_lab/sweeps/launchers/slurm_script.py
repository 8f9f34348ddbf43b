"""A run over the nodes of one Slurm job: a script with one step for every command."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, open_dict, read_write

from rlhf_lab.experiment.config.layout import Layout, parsed
from rlhf_lab.rollout.generators.vllm.http import KEY_BYTES, RUN_ID, SERVER_KEY
from rlhf_lab.sweeps.launchers.slurm import TARGET
from rlhf_lab.sweeps.launchers.torchrun import (
    HOST_MARK,
    MPS_FOLDER,
    MPS_PIPES,
    PORT_MARK,
    NodeCommand,
    Ports,
    ResourceRequest,
    commands,
    generator_of,
)
from rlhf_lab.types.errors import UserError

# Ports of a job by its number, below those that Linux gives to clients.
JOB_PORTS = Ports(0, 2, nccl=1, is_of_job=True)
FIRST_PORT, PORTS_OF_JOB, JOBS = 20000, 64, 192
# Slurm signals every process of a job, the trainers included; torchrun would end them at the second
# signal, while they save their state.
IGNORE_SIGNALS = "env --ignore-signal=TERM,USR1,USR2 "
# What a job on shared nodes gets for each device that it uses.
CPUS_OF_DEVICE, GIGABYTES_OF_DEVICE = 8, 64
# Seconds for trainers to save their state once a process is lost.
GRACE_SECONDS = 30
GRACE = "-seconds-of-grace"
# The memory of jobs is that of nodes: that of processors or GPUs is what an allocation set, from
# which the script was submitted, and srun refuses both.
START = f"""set -uo pipefail
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export {RUN_ID}="$SLURM_JOB_ID"
export {SERVER_KEY}="$(od -An -N{KEY_BYTES} -tx1 /dev/urandom | tr -d ' \\n')"
port=$(({FIRST_PORT} + SLURM_JOB_ID % {JOBS} * {PORTS_OF_JOB}))
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
stopped=false
trap 'stopped=true' TERM USR1 USR2
declare -A names=()
trainers=0
"""
MPS = f'export {MPS_PIPES}="{MPS_FOLDER}$SLURM_JOB_ID"\n'
# Slurm's numbers of GPUs are those of the whole node where it does not confine jobs.
CONFINED = """if [[ "${CUDA_VISIBLE_DEVICES:-0}" != 0* ]]; then
    echo "--share: Slurm does not confine jobs to their GPUs here (ConstrainDevices); \\
launch without --share" >&2
    exit 1
fi
"""
# Not `wait -n`: its -p, which gives the process, is younger than the bash of many clusters.
WATCH = f"""
# Every step is watched, servers too. The first that fails, or a server that ends, ends the job.
code=0
while [ "$trainers" -gt 0 ]; do
    for pid in "${{!names[@]}}"; do
        kill -0 "$pid" 2>/dev/null && continue
        ended=0
        wait "$pid" || ended=$?
        name=${{names[$pid]}}
        unset "names[$pid]"
        if [[ $name == trainer* ]]; then
            trainers=$((trainers - 1))
            [ "$ended" = 0 ] && continue
        elif $stopped; then
            continue
        fi
        echo "$name ended with exit code $ended: the job ends" >&2
        code=$((ended > 0 ? ended : 1))
        break 2
    done
    sleep 0.5
done
if [ "$code" != 0 ]; then
    # Trainers heed this signal and save their state, if they can.
    for pid in "${{!names[@]}}"; do
        [[ ${{names[$pid]}} == trainer* ]] && kill "$pid" 2>/dev/null
    done
    for _ in $(seq {GRACE}); do
        left=false
        for pid in "${{!names[@]}}"; do
            [[ ${{names[$pid]}} == trainer* ]] && kill -0 "$pid" 2>/dev/null && left=true
        done
        $left || break
        sleep 1
    done
    if $stopped; then exit {os.EX_TEMPFAIL}; fi
fi
exit "$code"
"""


@dataclass(frozen=True)
class SlurmRequest:
    """What a job requests from Slurm. share: other jobs may use its nodes. cpus, memory: of a node,
    0 and "" for all of a node, or a share by the devices. image, mounts: of pyxis's containers.
    grace: seconds for trainers to save their state once a process is lost, 0 for the usual."""

    share: bool = False
    cpus: int = 0
    memory: str = ""
    image: str = ""
    mounts: str = ""
    grace: int = 0

    def __post_init__(self) -> None:
        if self.grace < 0:
            raise UserError(f"--grace {self.grace}: choose 1 second or more")
        if self.mounts and not self.image:
            raise UserError(
                f"--container-mounts {self.mounts} without --container-image: only a container "
                "has mounts; pass its image too"
            )

    def header(self, layout: Layout, is_cpu: bool) -> list[str]:
        """The lines for sbatch. Without them a job gets one core of a node."""
        cpus = self.cpus or (CPUS_OF_DEVICE * layout.devices if self.share else 0)
        shared = f"{GIGABYTES_OF_DEVICE * layout.devices}G"
        memory = self.memory or (shared if self.share else "0")
        room = [] if self.share else ["--exclusive"]
        room += [f"--cpus-per-task={cpus}"] if cpus else []
        return [
            f"#SBATCH --job-name=rlhf_lab --nodes={layout.nodes} --ntasks-per-node=1",
            f"#SBATCH {' '.join([*room, f'--mem={memory}'])}",
            *([] if is_cpu else [f"#SBATCH --gpus-per-node={layout.devices}"]),
            "# Add --partition, --account and --time as your cluster needs them.",
        ]

    def container(self) -> str:
        """srun's options for a container, which sees the working folder."""
        if not self.image:
            return ""
        own = '"$PWD:$PWD"'
        mounts = f"{shlex.quote(self.mounts)},{own}" if self.mounts else own
        image = shlex.quote(self.image)
        return f'--container-image={image} --container-mounts={mounts} --container-workdir="$PWD" '


ALONE = SlurmRequest()


def slurm_script(
    layout: Layout,
    ports: Ports,
    overrides: Sequence[str],
    request: ResourceRequest,
    slurm: SlurmRequest = ALONE,
) -> str:
    """A job of all nodes, with one step for every command. It ends when the trainers end, and
    within `grace` seconds after any process is lost, which it names."""
    names = [f"{number}{HOST_MARK}" for number in range(layout.nodes)]
    found = commands(layout, names, ports, overrides, request)
    header = "\n".join(["#!/bin/bash", *slurm.header(layout, request.is_cpu)]) + "\n"
    confined = CONFINED if slurm.share and not request.is_cpu else ""
    steps = [line for command in found for line in step(command, slurm)]
    begin = START + (MPS if request.has_mps else "") + confined
    watch = WATCH.lstrip("\n").replace(GRACE, str(slurm.grace or GRACE_SECONDS))
    return header + begin + "\n".join(steps) + "\n" + watch


def step(command: NodeCommand, slurm: SlurmRequest) -> list[str]:
    """Start a command on its node, and note its name and host."""
    host = f"${{hosts[{command.node}]}}"
    srun = (
        "srun --overlap --export=ALL --kill-on-bad-exit=1 --cpu-bind=none --nodes=1 --ntasks=1 "
        f'--nodelist="{host}" {slurm.container()}'
    )
    # env, since a step is no shell that would read assignments.
    env = IGNORE_SIGNALS if command.is_trainer else "env " if command.environment else ""
    count = ["trainers=$((trainers + 1))"] if command.is_trainer else []
    return [
        f"{srun}{env}{command.text(quoted)} &",
        f'names[$!]="{command.name} on {host}"',
        *count,
    ]


def quoted(word: str) -> str:
    """A word for the shell, in which hosts and ports of the job are still to be filled in."""
    marks = {HOST_MARK: '"${{hosts[{}]}}"', PORT_MARK: '"$((port + {}))"'}
    parts = re.split(rf"(\d+)({HOST_MARK}|{PORT_MARK})", word)
    # Groups of three: text, number, mark.
    text = [shlex.quote(part) if part else "" for part in parts[::3]]
    filled = [
        marks[mark].format(number) for number, mark in zip(parts[1::3], parts[2::3], strict=True)
    ]
    return "".join(a + b for a, b in zip(text, [*filled, ""], strict=True)) or "''"


def layout_of(text: str, launcher: DictConfig) -> Layout | None:
    """The layout of a sweep's jobs, if it has one; sets nodes and devices of the launcher.

    Raises UserError for a launcher without nodes.
    """
    if not text:
        return None
    layout = parsed(text)
    if launcher._target_ != TARGET:
        raise UserError(
            f"hydra.sweeper.layout={text}: only Slurm gives jobs several nodes; pass "
            "launcher=slurm, or leave the layout out"
        )
    with read_write(launcher), open_dict(launcher):
        launcher.nodes = layout.nodes
        if gpus := launcher.gpus_per_node:
            kind, colon, _ = str(gpus).rpartition(":")
            launcher.gpus_per_node = f"{kind}{colon}{layout.devices}" if kind else layout.devices
        launcher.additional_parameters = {"exclusive": True, **launcher.additional_parameters}
    return layout


def script_of(
    layout: Layout | None, words: Sequence[str], launcher: DictConfig, server_devices: int
) -> str:
    """The bash script that replaces the command `rlhf-lab WORDS`; empty without a layout."""
    if layout is None:
        return ""
    own = [word for word in words[1:] if word not in generator_of(layout)]
    request = ResourceRequest(server_devices, is_cpu=not launcher.gpus_per_node)
    return slurm_script(layout, JOB_PORTS, own, request)
