"""How a fork trains: the rounds up to its own by the settings of its ancestors, then its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import chunks_per_round
from rlhf_lab.experiment.fork_folder import is_written, take_over
from rlhf_lab.experiment.fork_past import Fork, Past, newest_round
from rlhf_lab.experiment.outputs import CHECKPOINTS, FolderOutput
from rlhf_lab.experiment.policy_loader import PolicyLoader
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.experiment.train import learn
from rlhf_lab.models.devices import release_unused
from rlhf_lab.runs.folder import manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.checkpoint_files import Snapshot, along_schedule, forked
from rlhf_lab.types.errors import UserError


def train_past(
    fork: Fork,
    config: Config,
    folder: Path,
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
    begin = time.perf_counter()
    if fork.pasts:
        take_over(Path(config.fork.parent), folder, config.fork.round, console.print)
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
        output = FolderOutput(past.config, folder, console, facts)
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
