"""What the cluster has and allows, before any job is submitted."""

from __future__ import annotations

import getpass
import math
import os
import shutil
import subprocess
from importlib.util import find_spec

from omegaconf import DictConfig

from rlhf_lab.sweeps.launchers.slurm_words import NODE
from rlhf_lab.types.errors import UserError

PACKAGES = ("submitit", "hydra_plugins.hydra_submitit_launcher")
COMMANDS = ("sbatch", "srun", "scontrol", "sacct")
OTHERWISE = "or run the jobs on this machine: LAUNCHER=joblib of make, launcher=joblib of rlhf-lab"
# Slurm's own, where a configuration does not show it.
MOST_IN_ARRAY = 1001


def check_ready() -> dict[str, str]:
    """Refuse to start where jobs cannot be submitted, or where killed jobs go unnoticed. Returns
    the settings of the cluster.

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
    settings = settings_of(output_of(["scontrol", "show", "config"]))
    kind = settings.get("AccountingStorageType", "")
    if not kind or kind.endswith("none"):
        raise UserError(
            f"launcher=slurm: this cluster has no accounting (AccountingStorageType={kind}), "
            "without which a killed job would be waited for for ever: have slurmdbd set up "
            f"(tests/slurm/cluster.sh shows how), {OTHERWISE}"
        )
    output_of(["sacct", "--allocations", "--noheader", "--starttime=now"])
    return settings


def array_size(settings: dict[str, str]) -> int:
    """The most jobs that an array of the cluster has."""
    # 0 where the cluster has no arrays.
    return max(1, int(settings.get("MaxArraySize", MOST_IN_ARRAY)))


def check_submittable(launcher: DictConfig, number: int) -> None:
    """Refuse more jobs than the user's account, or the QOS of the launcher's options, may have
    submitted at a time. Which limits the jobs of before leave, Slurm decides at submission."""
    settings = check_ready()
    if "limits" not in settings.get("AccountingStorageEnforce", "") or not shutil.which("sacctmgr"):
        return
    account = launcher.account or os.environ.get("SBATCH_ACCOUNT", "")
    qos = launcher.qos or os.environ.get("SBATCH_QOS", "")
    own = [f"user={getpass.getuser()}", f"cluster={settings['ClusterName']}"]
    own += [f"account={account}"] if account else []
    questions = [["account", "associations", *own, "format=Account,MaxSubmitJobs"]]
    questions += [["qos", "qos", qos, "format=Name,MaxSubmitJobsPU"]] if qos else []
    for key, *words in questions:
        text = output_of(["sacctmgr", "--noheader", "--parsable2", "show", *words])
        rows = [line.split("|") for line in text.splitlines()]
        most = max((int(limit) if limit else math.inf for _, limit in rows), default=math.inf)
        if number > most:
            names = " or ".join(sorted({name for name, _ in rows}))
            raise UserError(
                f"{NODE}.{key}={names}: the cluster lets it have {most} jobs submitted at a time "
                f"(MaxSubmitJobs), and {number} are to run: sweep over fewer values in one "
                f"command, or pass another {NODE}.{key}"
            )


def lacks(module: str) -> bool:
    """Whether a module cannot be found; imports its package, not itself."""
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True


def output_of(command: list[str]) -> str:
    """The output of a Slurm command. Raises UserError if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise UserError(
            f"launcher=slurm: `{' '.join(command)}` failed ({done.stderr.strip()}): wait until the "
            f"cluster answers, {OTHERWISE}"
        )
    return done.stdout


def settings_of(config: str) -> dict[str, str]:
    """The values of `scontrol show config` by name, "" for those that are (null)."""
    pairs = (line.partition("=") for line in config.splitlines())
    return {key.strip(): value.strip().strip("()").removeprefix("null") for key, _, value in pairs}
