"""How a run that ends early is recorded, and how it is resumed."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.outputs import CHECKPOINTS
from rlhf_lab.runs.disk import disk_error
from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.manifest import precision_in
from rlhf_lab.runs.run_directory import End, RunDirectory
from rlhf_lab.runs.secrets import masked
from rlhf_lab.runs.signals import SignalHandler
from rlhf_lab.training.checkpoint_files import saved_checkpoints
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


def with_hint(error: BaseException, stop: SignalHandler, folder: Path) -> BaseException:
    """The exception that ends a run's command. Of a run that was stopped: KeyboardInterrupt at
    Ctrl-C, else StopRequested, whose text names the checkpoint and how to resume the run."""
    if disk_error(error):
        error.add_note(f"the run has failed, {resume_hint(folder)}")
    if not isinstance(error, KeyboardInterrupt | StopRequested):
        return error
    kind = KeyboardInterrupt if stop.is_interrupt else type(error)
    return kind(resume_hint(folder))


def resume_hint(folder: Path) -> str:
    """The newest checkpoint of a run that ended early, and how to resume it."""
    rounds = [int(path.name) for path in saved_checkpoints(folder / CHECKPOINTS)]
    newest = f"its newest checkpoint is of round {rounds[-1]}" if rounds else "it has no checkpoint"
    return f"{newest}; `rlhf-lab resume {shlex.quote(str(folder))}` goes on"


def resume_text(manifest: Mapping[str, Any], folder: Path) -> str:
    """Where a run that is resumed goes on, if that is not at a checkpoint, and whether it computes
    in another way; else ""."""
    if "resumed" not in manifest:
        return ""
    return "\n".join(filter(None, (place_text(manifest, folder), other_precision(manifest))))


def other_precision(manifest: Mapping[str, Any]) -> str:
    """A warning if `auto` means another device or dtype than when the run began; else ""."""
    before, now = manifest["resumed"][-1].get("precision"), precision_in(manifest)
    if not before or before == now:
        return ""
    return (
        f"warning: it computed with {before} before, and goes on with {now}: its rounds compare "
        "with no run of one kind; name engine.device and engine.dtype to keep the former"
    )


def place_text(manifest: Mapping[str, Any], folder: Path) -> str:
    """Where it goes on, if that is not at a checkpoint; else ""."""
    if "weights_digest" in manifest:
        return "it had trained to its end: its evaluation is made"
    if saved_checkpoints(folder / CHECKPOINTS):
        return ""
    return "it has no checkpoint: it begins again at round 0"
