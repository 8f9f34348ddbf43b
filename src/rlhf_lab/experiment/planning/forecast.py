"""What a run takes at the very least, against what this machine has: refused before it starts.

Every forecast is a lower bound, far below what a run really takes, so nothing is refused that could
have come to its end: a sample is held as a few hundred bytes, a round is written as one thousand,
and no cluster trains on more than a million rows a second.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.planning.needs import (
    Need,
    evaluates,
    run_disk,
    run_memory,
    run_rows,
    stage_memory,
    stage_rows,
)
from rlhf_lab.models.adapters import num_trained
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.types.errors import UserError

ROWS_PER_SECOND = 1e6
YEAR = 365 * 86_400
MOST_YEARS = 100
# Bytes above which a run reports what it will write.
MUCH_DISK = 1e9
# Bytes of a number that is trained.
FLOAT = 4


@dataclass(frozen=True)
class Machine:
    """Bytes of memory, those of devices among them, and of free disk."""

    memory: int
    disk: int


def this_machine(config: Config) -> Machine:
    """What there is here. Of the other nodes of a run, each is taken to have as much."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + swap()
    if torch.cuda.is_available():
        for device in range(torch.cuda.device_count()):
            memory += torch.cuda.get_device_properties(device).total_memory
    root = Path(config.output.dir or config.output.root).absolute()
    there = next(path for path in (root, *root.parents) if path.is_dir())
    disk = shutil.disk_usage(there)
    # A file system of the kernel's own has no size; whether it can be written to is seen later.
    return Machine(memory * world_size(), disk.free if disk.total else sys.maxsize)


def swap() -> int:
    """Bytes of swap, 0 where the system does not show them."""
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("SwapTotal:"))


def require_room(config: Config, is_run: bool, machine: Machine | None = None) -> None:
    """Refuse what cannot come to its end here, however long it is given: the stages of a config,
    and the run itself if it is one."""
    machine = machine or this_machine(config)
    memory = [*stage_memory(config), *(run_memory(config) if is_run else ())]
    for need in memory:
        refuse(need, "memory", machine.memory, f"this machine has {size(machine.memory)}")
    for need in run_disk(config) if is_run else ():
        refuse(need, "disk", machine.disk, f"{size(machine.disk)} are free below output.root")
    for need in [*stage_rows(config), *(run_rows(config) if is_run else ())]:
        years = need.amount / ROWS_PER_SECOND / YEAR
        if years > MOST_YEARS:
            raise UserError(
                f"{need.keys}: {need.what} are {need.amount:.0e} rows, at least {years:.0e} years "
                "at a million rows a second: lower them"
            )


def refuse(need: Need, of: str, there: int, but: str) -> None:
    """Raise UserError for a need that is more than there is."""
    if need.amount > there:
        raise UserError(
            f"{need.keys}: {need.what} take at least {size(need.amount)} of {of}, and {but}: lower "
            "them"
        )


def size(number: float) -> str:
    """Bytes in words: `24 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} EB"


def kept_weights(config: Config, model: Any) -> str:
    """What a run will leave on the disk, where that is much; "" elsewhere. model: its policy."""
    parameters = list(model.parameters())
    trained, each = sum(p.numel() for p in parameters), sum(p.nbytes for p in parameters)
    what = "policy"
    if config.model.lora_rank:
        trained = num_trained(model, config.model.lora)
        what, each = "adapters", FLOAT * trained
    copies = len(config.eval.versions(config.run.num_rounds)) + 1
    weights = copies * each
    if weights < MUCH_DISK:
        return ""
    # The weights that AdamW changes, and its two moments.
    state = 3 * FLOAT * trained
    more = f", and its checkpoint {size(state)}" if config.checkpoint.name != "none" else ""
    return (
        f"the run will hold {copies} copies of the {what}, {size(weights)}, the last one and those "
        f"of eval.snapshots={config.eval.snapshots} and eval.every={config.eval.every}{more}"
    )


def few_prompts(config: Config) -> str:
    """That an evaluation takes fewer prompts than its option, since its split has no more; "" if
    there are enough."""
    if not evaluates(config):
        return ""
    there = len(config.task.examples(config.eval.split))
    key, prompts = config.eval.most_prompts
    if prompts <= there:
        return ""
    return (
        f"{key}={prompts}: split {config.eval.split.value} of task={config.task.name} has {there} "
        "rows, and all of them are judged"
    )
