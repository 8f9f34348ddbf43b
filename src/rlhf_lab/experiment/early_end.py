"""How a run that ends early is recorded, and how it is resumed."""

from __future__ import annotations

import shlex
import traceback
from pathlib import Path

from rlhf_lab.experiment.outputs import CHECKPOINTS
from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.run_directory import End, RunDirectory
from rlhf_lab.runs.secrets import masked
from rlhf_lab.training.checkpoint import saved_checkpoints
from rlhf_lab.types.errors import StopRequested


def end_early(record: RunDirectory, error: BaseException) -> None:
    """Record how a run ended. If the disk is what failed, the error itself must still be seen."""
    ends: dict[type[BaseException], End] = {
        KeyboardInterrupt: "interrupted",
        StopRequested: "stopped",
    }
    state = ends.get(type(error), "failed")
    facts = {"error": masked(traceback.format_exc())} if state == "failed" else {}
    try:
        record.finish(state, **facts)
    except OSError as second:
        error.add_note(f"{record.folder / MANIFEST} could not be updated either: {second}")


def resume_hint(folder: Path) -> str:
    """The newest checkpoint of a run that the disk stopped, and how to resume it."""
    rounds = [int(path.name) for path in saved_checkpoints(folder / CHECKPOINTS)]
    newest = f"its newest checkpoint is of round {rounds[-1]}" if rounds else "it has no checkpoint"
    return f"the run has failed, {newest}; `rlhf-lab resume {shlex.quote(str(folder))}` goes on"
