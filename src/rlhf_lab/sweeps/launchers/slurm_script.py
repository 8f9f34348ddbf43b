"""A run over the nodes of one Slurm job: slurm_job.sh, filled in with a step for every command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from omegaconf import DictConfig, open_dict, read_write

from rlhf_lab.experiment.config.layout import Layout, parsed
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

# Ports of a job by its number.
JOB_PORTS = Ports(0, 2, nccl=1, is_of_job=True)
# What a job on shared nodes gets for each device that it uses.
CPUS_OF_DEVICE, GIGABYTES_OF_DEVICE = 8, 64
# Seconds for trainers to save their state once a process is lost.
GRACE_SECONDS = 30
MPS = f'export {MPS_PIPES}="{MPS_FOLDER}$SLURM_JOB_ID"\n'
# Slurm's numbers of GPUs are those of the whole node where it does not confine jobs.
CONFINED = """if [[ "${CUDA_VISIBLE_DEVICES:-0}" != 0* ]]; then
    echo "--share: Slurm does not confine jobs to their GPUs here (ConstrainDevices); \\
launch without --share" >&2
    exit 1
fi
"""


class Script(Template):
    """A bash script with places such as #:steps, which are comments to bash."""

    delimiter = "#:"


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
    confined = CONFINED if slurm.share and not request.is_cpu else ""
    template = Script(Path(__file__).with_name("slurm_job.sh").read_text(encoding="utf-8"))
    return template.substitute(
        header="\n".join(slurm.header(layout, request.is_cpu)),
        grace=slurm.grace or GRACE_SECONDS,
        begin=(MPS if request.has_mps else "") + confined,
        container=slurm.container(),
        overrides="\n    ".join(map(quoted, overrides)),
        steps="\n".join(step(command, tuple(overrides)) for command in found),
    )


def step(command: NodeCommand, overrides: tuple[str, ...]) -> str:
    """Start a command on its node, under its name. overrides: of the script's own array."""
    words = [quoted(word) for word in command.words]
    if overrides and command.overrides[: len(overrides)] == overrides:
        first = len(words) - len(command.overrides)
        words[first : first + len(overrides)] = ['"${overrides[@]}"']
    text = replace(command, words=tuple(words)).text(str)
    return f"start {command.name} {command.node} {text}"


def quoted(word: str) -> str:
    """A word for the shell, in which hosts and ports of the job are still to be filled in."""
    if HOST_MARK not in word and PORT_MARK not in word:
        return shlex.quote(word)
    word = re.sub(r'[\\"$`]', r"\\\g<0>", word)
    word = re.sub(rf"(\d+){HOST_MARK}", r"${hosts[\1]}", word)
    return '"' + re.sub(rf"(\d+){PORT_MARK}", r"$((port + \1))", word) + '"'


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
