"""Check the options of the Slurm launcher and the cluster before any job is submitted."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from rlhf_lab.types.errors import UserError

TARGET = "hydra_plugins.rlhf_lab_plugin.slurm_launcher.SlurmLauncher"
PACKAGES = ("submitit", "hydra_plugins.hydra_submitit_launcher")
COMMANDS = ("sbatch", "srun", "scontrol", "sacct")
OTHERWISE = "or run the jobs on this machine: LAUNCHER=joblib of make, launcher=joblib of rlhf-lab"


@dataclass
class SlurmOptions:
    """hydra/launcher=slurm: the resources of each job.

    The options of hydra-submitit-launcher (docs/slurm.md), and container.
    timeout_min, signal_delay_s: minutes of a job, and seconds before their end at which it saves a
    checkpoint to go on in a new job; max_num_timeout: how often. container: an image for
    `srun --container-image` (pyxis), or a command with spaces, which is put before python.
    """

    _target_: str = TARGET
    submitit_folder: str = "${hydra.sweep.dir}/.submitit/%j"
    name: str = "${hydra.job.name}"
    timeout_min: int = 1440
    cpus_per_task: int | None = None
    gpus_per_node: int | None = None
    tasks_per_node: int = 1
    mem_gb: int | None = None
    nodes: int = 1
    stderr_to_stdout: bool = False
    partition: str | None = None
    qos: str | None = None
    comment: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    gres: str | None = None
    cpus_per_gpu: int | None = None
    gpus_per_task: int | None = None
    mem_per_gpu: str | None = None
    mem_per_cpu: str | None = None
    account: str | None = None
    signal_delay_s: int = 300
    max_num_timeout: int = 20
    additional_parameters: dict[str, Any] = field(default_factory=dict)
    array_parallelism: int = 256
    setup: list[str] | None = None
    container: str = ""


LEAST = {
    "timeout_min": 1,
    "signal_delay_s": 1,
    "max_num_timeout": 0,
    "array_parallelism": 1,
    "nodes": 1,
    "tasks_per_node": 1,
}


def check_options(options: SlurmOptions) -> None:
    """Refuse options with which no job could run or save its checkpoint."""
    for key, least in LEAST.items():
        if (value := getattr(options, key)) < least:
            raise UserError(f"hydra.launcher.{key}={value}: choose {least} or more")
    if options.signal_delay_s >= 60 * options.timeout_min:
        raise UserError(
            f"hydra.launcher.signal_delay_s={options.signal_delay_s} with hydra.launcher."
            f"timeout_min={options.timeout_min}: every job would be stopped when it starts; "
            f"raise timeout_min, or lower signal_delay_s below {60 * options.timeout_min}"
        )
    if options.tasks_per_node > 1:
        raise UserError(
            f"hydra.launcher.tasks_per_node={options.tasks_per_node}: a run starts its processes "
            "itself; leave it at 1 and pass hydra.sweeper.layout for several trainers"
        )


def check_ready() -> None:
    """Refuse to start where jobs cannot be submitted, or where killed jobs go unnoticed.

    Raises UserError with the remedy.
    """
    missing = [name for name in PACKAGES if lacks(name)]
    if missing:
        raise UserError(
            f"launcher=slurm: the package hydra-submitit-launcher is missing ({missing[0]}): "
            f"pip install 'rlhf-lab[slurm]', {OTHERWISE}"
        )
    absent = [name for name in COMMANDS if shutil.which(name) is None]
    if absent:
        raise UserError(
            f"launcher=slurm: {', '.join(absent)} not on PATH: start the sweep on a login node of "
            f"the cluster (module load slurm, on some), {OTHERWISE}"
        )
    kind = accounting(output_of(["scontrol", "show", "config"]))
    if not kind or kind.endswith("none"):
        raise UserError(
            f"launcher=slurm: this cluster has no accounting (AccountingStorageType={kind}), "
            "without which a killed job would be waited for for ever: have slurmdbd set up "
            f"(tests/slurm/cluster.sh shows how), {OTHERWISE}"
        )
    output_of(["sacct", "--allocations", "--noheader", "--starttime=now"])


def lacks(module: str) -> bool:
    """Whether a module cannot be found; imports its package, not itself."""
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True


def output_of(command: list[str]) -> str:
    """The output of a Slurm command. Raises UserError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(
            f"launcher=slurm: `{' '.join(command)}` failed ({done.stderr.strip()}): wait until the "
            f"cluster answers, {OTHERWISE}"
        )
    return done.stdout


def accounting(config: str) -> str:
    """AccountingStorageType of `scontrol show config`, without brackets; empty if there is none."""
    for line in config.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "AccountingStorageType":
            return value.strip().strip("()").removeprefix("null")
    return ""
