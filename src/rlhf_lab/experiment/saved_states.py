"""What the checkpoints of a run take on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.outputs import CHECKPOINTS
from rlhf_lab.experiment.planning.forecast import size
from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.training.checkpoint_files import state_bytes


def report_states(config: Config, folder: Path, console: Console) -> dict[str, Any]:
    """Print how many checkpoints a run with checkpoint.keep_every left, and their size. Returns the
    facts for its manifest."""
    found = state_bytes(folder / CHECKPOINTS)
    if found and config.checkpoint.keep_every:
        mean = sum(found.values()) / len(found)
        kept = f"{counted(len(found), 'checkpoint')} kept, {size(mean)} each"
        console.print(f"{kept}: `rlhf-lab fork {folder} round=R` goes on from any round")
    return {"rounds": list(found), "bytes": list(found.values())}
