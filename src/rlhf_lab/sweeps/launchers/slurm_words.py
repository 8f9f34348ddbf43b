"""Slurm's words: sizes and times as sbatch reads them, and the keys of the launcher that a refusal
by sbatch, or the reason why a job waits, is about."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from rlhf_lab.types.errors import UserError

NODE = "hydra.launcher"
# Minutes of the last unit of a time with days, or without: D-H:M:S, H:M:S, M:S, M.
WITH_DAYS = (60.0, 1.0, 1 / 60)
WITHOUT_DAYS = {1: (1.0,), 2: (1.0, 1 / 60), 3: WITH_DAYS}
TIME = re.compile(r"(?:(\d+)-)?(\d+(?::\d+){0,2})")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
GIGABYTES = {"": 1.0, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
OF_NODES = ("cpus_per_task", "mem_gb", "gpus_per_node", "nodes", "constraint")
MOST_SUBMITTED = (
    "the cluster limits the jobs that a user may have submitted: wait until others have ended, or "
    "sweep over fewer values in one command"
)
# What sbatch and scontrol write, special before general; the first that fits has the keys, or the
# remedy.
SUBJECTS: tuple[tuple[str, tuple[str, ...] | str], ...] = (
    (r"MaxSubmit", MOST_SUBMITTED),
    (r"held", "start it with `scontrol release`"),
    (r"time\s?limit|wall|minutes", ("timeout_min", "partition")),
    (r"BadConstraints|PartitionConfig|node configuration", (*OF_NODES, "partition")),
    (r"NodeNotAvail|NodeDown|DOWN|DRAIN", ("partition", "constraint", "exclude", "timeout_min")),
    (r"memory|(Grp|Max|Min|-)mem", ("mem_gb", "mem_per_cpu", "mem_per_gpu")),
    (r"gres|gpu|billing", ("gpus_per_node", "gres")),
    (r"cpu", ("cpus_per_task",)),
    (r"invalid account|account ?not", ("account", "partition")),
    (r"qos spec|invalid ?qos|qos ?not", ("qos", "account")),
    (r"feature", ("constraint",)),
    (r"node name", ("exclude", "additional_parameters")),
    (r"node count|NodeLimit|GrpNode|MaxNode|too many nodes", ("nodes",)),
    (r"JobsLimit|JobLimit|MaxJobs|GrpJob|job array", ("array_parallelism",)),
    (r"partition", ("partition",)),
    (r"option|licen[sc]e|reservation|--[a-z-]+ spec", ("additional_parameters",)),
    (r"policy", ("qos", "account", "timeout_min", "cpus_per_task", "array_parallelism")),
)
# Which of the limits it was stands in another line.
POLICY = re.compile(r"\(job submit limit[^)]*\)")
COMMON = ("partition", "account", "qos", "gpus_per_node", "timeout_min")


def minutes_of(value: int | str) -> int:
    """Minutes of hydra.launcher.timeout_min: a number, or a time as sbatch takes it, rounded up.

    M, M:S, H:M:S, D-H, D-H:M or D-H:M:S. Raises UserError for another text.
    """
    if isinstance(value, int):
        return value
    if (found := TIME.fullmatch(value.strip())) is None:
        raise UserError(
            f"{NODE}.timeout_min={value}: write minutes, or a time of Slurm such as 12:00:00 or "
            "1-12:00:00"
        )
    days, parts = found[1], [int(one) for one in found[2].split(":")]
    units = WITH_DAYS if days else WITHOUT_DAYS[len(parts)]
    minutes = sum(number * unit for number, unit in zip(parts, units, strict=False))
    return math.ceil(int(days or 0) * 24 * 60 + round(minutes, 6))


def gigabytes_of(value: float | str | None) -> float | None:
    """Gigabytes of hydra.launcher.mem_gb: a number, or a size with sbatch's unit. Raises UserError
    for another text."""
    if value is None or isinstance(value, int | float):
        return value
    if (found := SIZE.fullmatch(value.strip())) is None:
        raise UserError(
            f"{NODE}.mem_gb={value}: write gigabytes, or a size with its unit such as 32G or 64000M"
        )
    size = float(found[1]) * GIGABYTES[found[2].upper()]
    return int(size) if size.is_integer() else size


def remedy_of(text: str, options: Mapping[str, Any]) -> str:
    """The keys with their values that a message of Slurm is about. options: the launcher's."""
    plain = POLICY.sub("", text)
    subjects = (found for pattern, found in SUBJECTS if re.search(pattern, plain, re.IGNORECASE))
    keys = next(subjects, COMMON)
    if isinstance(keys, str):
        return keys
    *most, last = (f"{key}={'null' if options[key] is None else options[key]}" for key in keys)
    return f"change {NODE}.{', '.join(most)}{' or ' if most else ''}{last}"
