"""What a fork copies from its parent's folder, which is never written to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from rlhf_lab.experiment.outputs import CHECKPOINTS
from rlhf_lab.runs.disk import (
    CorruptFolder,
    atomic_file,
    atomic_folder,
    files_in,
    verify,
)
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.runs.row_digests import Extent, require_rows
from rlhf_lab.runs.saved_tensors import WEIGHTS, read_version, version_files, write_version
from rlhf_lab.training.checkpoint_files import (
    QUEUE,
    STATE,
    VERSION,
    State,
    optimizer_file,
    saved_checkpoints,
)


def take_over(parent: Path, folder: Path, round_: int, report: Callable[[str], None]) -> None:
    """Copy the parent's newest intact checkpoint at or before a round, with the rows that it counts
    on; nothing where the fork has a checkpoint, or the parent has none so early."""
    if saved_checkpoints(folder / CHECKPOINTS):
        return
    saved = [path for path in saved_checkpoints(parent / CHECKPOINTS) if int(path.name) <= round_]
    for checkpoint in reversed(saved):
        try:
            verify(checkpoint, (STATE, optimizer_file(checkpoint), QUEUE))
            records = read_json(checkpoint / STATE, State).get("records", {})
        except (CorruptFolder, Unreadable) as error:
            report(f"checkpoint {error}: using the one before it")
            continue
        for name, extent in records.items():
            require_rows(parent / name, extent, checkpoint)
            copy_rows(parent / name, folder / name, extent)
        if int(checkpoint.name) == round_:
            copy_version(checkpoint, folder, round_)
        copy_checkpoint(checkpoint, folder / CHECKPOINTS)
        return


def copy_rows(source: Path, target: Path, extent: Extent) -> None:
    """The first part of a file of rows, if there is such a file."""
    if source.is_file():
        with atomic_file(target) as draft, source.open("rb") as file:
            draft.write_bytes(file.read(extent.size))


def copy_version(checkpoint: Path, folder: Path, round_: int) -> None:
    """The version that a fork begins from, for evaluation."""
    (folder / WEIGHTS).mkdir(exist_ok=True)
    weights = read_version(round_, version_files(checkpoint, VERSION)[round_])
    write_version(weights, folder / WEIGHTS / f"{round_:06d}")


def copy_checkpoint(checkpoint: Path, root: Path) -> None:
    """A checkpoint, which appears whole."""
    with atomic_folder(root / checkpoint.name, {"round": int(checkpoint.name)}) as draft:
        for path in files_in(checkpoint):
            target = draft / path.relative_to(checkpoint)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def is_written(checkpoint: Path) -> bool:
    """Whether every chunk of a checkpoint's queue is finished."""
    return all("rollout" in row for row in read_rows(checkpoint / QUEUE))
