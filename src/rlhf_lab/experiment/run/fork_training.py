"""What a fork copies from its parent's folder, which is never written to."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.policy import PolicyLoader
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import chunks_per_round
from rlhf_lab.experiment.run.fork import Fork, Past, newest_round
from rlhf_lab.experiment.run.outputs import CHECKPOINTS, FolderOutput
from rlhf_lab.experiment.run.train import learn
from rlhf_lab.models.devices import release_unused
from rlhf_lab.runs.disk import (
    CorruptFolder,
    atomic_file,
    atomic_folder,
    files_in,
    verify,
)
from rlhf_lab.runs.folder import manifest_path
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.reading import Unreadable, read_json
from rlhf_lab.runs.row_digests import Extent, require_rows
from rlhf_lab.runs.run_directory import RunDirectory
from rlhf_lab.runs.saved_tensors import WEIGHTS, read_version, version_files, write_version
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.checkpoint_files import (
    QUEUE,
    STATE,
    VERSION,
    Snapshot,
    State,
    along_schedule,
    forked,
    optimizer_file,
    saved_checkpoints,
)
from rlhf_lab.types.errors import UserError


def take_over(
    parent: Path, record: RunDirectory, round_: int, report: Callable[[str], None]
) -> None:
    """Copy the parent's newest intact checkpoint at or before a round, with the rows that it counts
    on; nothing where the fork has a checkpoint, or the parent has none so early."""
    folder = record.folder
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
            record.record_files(copy_version(checkpoint, folder, round_))
        copy_checkpoint(checkpoint, folder / CHECKPOINTS)
        return


def copy_rows(source: Path, target: Path, extent: Extent) -> None:
    """The first part of a file of rows, if there is such a file."""
    if source.is_file():
        with atomic_file(target) as draft, source.open("rb") as file:
            draft.write_bytes(file.read(extent.size))


def copy_version(checkpoint: Path, folder: Path, round_: int) -> list[Path]:
    """The version that a fork begins from, for evaluation. Returns its files."""
    (folder / WEIGHTS).mkdir(exist_ok=True)
    weights = read_version(round_, version_files(checkpoint, VERSION)[round_])
    return write_version(weights, folder / WEIGHTS / f"{round_:06d}")


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


def train_past(
    fork: Fork,
    config: Config,
    record: RunDirectory,
    console: Console,
    facts: Mapping[str, Any],
    loader: PolicyLoader,
    stages: Artifacts,
    should_stop: Callable[[], bool],
) -> dict[str, Any]:
    """Bring a fork's folder to its round: copy the parent's checkpoint before it, and train what
    is missing. Nothing where that is done, or the run is no fork. Returns facts for the manifest:
    the seconds that it took."""
    if fork.facts is None:
        return {}
    begin, folder = time.perf_counter(), record.folder
    if fork.pasts:
        take_over(Path(config.fork.parent), record, config.fork.round, console.print)
    for past in fork.pasts:
        if is_reached(folder, past):
            continue
        first = newest_round(folder)
        console.print(f"rounds {first} to {past.until} are those of {config.fork.parent}")
        if text := other_code(Path(config.fork.parent), folder):
            console.print(text)
        release_unused()
        sources = stages.of(past.config).sources()
        policy = loader.take(sources.policy, past.config.seed)
        output = FolderOutput(past.config, record, console, facts)
        state = state_at(past, folder)
        learn(past.config, sources, policy, output, should_stop, state, finishes_chunks=True)
    return {"fork": {**fork.facts, "seconds": time.perf_counter() - begin}}


def other_code(parent: Path, folder: Path) -> str:
    """A warning where a fork repeats rounds by other code than its parent's; "" where it is the
    same."""
    theirs, own = (read_manifest(manifest_path(one)).get("code") for one in (parent, folder))
    if theirs == own:
        return ""
    return (
        f"{parent} was trained by other code ({str(theirs)[:8]}, this is {str(own)[:8]}): rounds "
        "that are repeated may differ from its own"
    )


def is_reached(folder: Path, past: Past) -> bool:
    """Whether a stretch is trained, and all chunks on their way at its end are written but those
    that later versions continue."""
    newest = newest_round(folder)
    if newest != past.until:
        return newest > past.until
    is_continued = past.config.mode.segment_steps > 0 or past.config.mode.is_virtual
    return is_continued or is_written(folder / CHECKPOINTS / f"{newest:08d}")


def state_at(past: Past, folder: Path) -> Callable[[Snapshot | None], Snapshot | None]:
    """What makes of a checkpoint the state that a stretch, or the fork itself, goes on from."""
    config = past.config

    def state(found: Snapshot | None) -> Snapshot | None:
        round_ = 0 if found is None else found.round
        if round_ < config.fork.round:
            raise UserError(
                f"{folder} has no intact checkpoint of round {config.fork.round} or later: delete "
                f"its folder {CHECKPOINTS} to begin from the parent's again"
            )
        if found is None:
            return None
        is_begin = config.fork.is_on and round_ == config.fork.round
        if past.was_timed and (is_begin or config.mode.is_replay):
            found = along_schedule(found, chunks_per_round(config))
        return forked(found, past.keeps_coefficient) if is_begin else found

    return state
