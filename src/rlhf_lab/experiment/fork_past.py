"""The past of a fork: the stretches of rounds that the settings of its ancestors train.

A fork at round R begins from a checkpoint of its parent at or before R. The rounds from there to R
are trained in the fork's own folder by the parent's settings, which repeats the parent's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.fork_changes import changes_between, require_possible
from rlhf_lab.experiment.outputs import CHECKPOINTS
from rlhf_lab.rollout.mode import ExecutorKind, Mode, OnFailure, WeightPolicy
from rlhf_lab.runs.folder import manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.training.checkpoint_files import saved_checkpoints
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.types.errors import UserError

ReadConfig = Callable[[Path], Config]


@dataclass(frozen=True)
class Past:
    """A stretch of rounds of one config, to `until` (0: to its end).

    was_timed: whether the checkpoints that it begins from are of a run whose timing decided which
    version wrote what. keeps_coefficient: whether it goes on with the adapted KL coefficient of the
    run that it is a fork of.
    """

    config: Config
    until: int = 0
    was_timed: bool = False
    keeps_coefficient: bool = True


@dataclass(frozen=True)
class Fork:
    """What a run takes over: the stretches before its own, oldest first, its own one (None for a
    run of its own), and for the manifest its parent and what it changes."""

    pasts: tuple[Past, ...] = ()
    own: Past | None = None
    facts: Mapping[str, Any] | None = None


def fork_of(config: Config, read: ReadConfig) -> Fork:
    """The past of a config; none of a run of its own. read(folder): the config of a run. Raises
    UserError where a fork is not possible."""
    if not config.fork.is_on:
        return Fork()
    folder, round_ = Path(config.fork.parent), config.fork.round
    manifest = read_manifest(manifest_path(folder))
    parent = read(folder)
    require_round(config, parent)
    changes = changes_between(parent, config)
    require_possible(parent, config, changes, folder)
    if config.fork.without_rows:
        changes["fork.without_rows"] = [], config.fork.without_rows
    facts = {
        "parent": str(folder),
        "parent_id": manifest.get("run_id", ""),
        "round": round_,
        "changes": {key: list(pair) for key, pair in changes.items()},
    }
    was_timed = parent.mode.is_timed
    own = Past(config, 0, was_timed, parent.algo == config.algo)
    if not round_:
        return Fork((), own, facts)
    before = fork_of(parent, read) if needs_earlier(config, parent) else Fork()
    keeps = before.own is None or before.own.keeps_coefficient
    past = Past(as_past(parent, config), round_, was_timed, keeps)
    return Fork((*before.pasts, past), own, facts)


def require_round(config: Config, parent: Config) -> None:
    """Refuse a round that the parent does not have of its own."""
    round_, folder = config.fork.round, config.fork.parent
    rounds = min(parent.run.num_rounds, config.run.num_rounds)
    if round_ >= rounds:
        raise UserError(
            f"fork.round={round_}: {folder} has {rounds} rounds; choose 0 to {rounds - 1}"
        )
    if parent.fork.is_on and round_ <= parent.fork.round:
        raise UserError(
            f"fork.round={round_}: {folder} is itself a fork at round {parent.fork.round}; choose "
            f"a later one, or fork {parent.fork.parent}"
        )


def needs_earlier(config: Config, parent: Config) -> bool:
    """Whether the rounds to train begin before those of the parent's own settings, or with them."""
    begin = newest_round(Path(config.output.dir)) if config.output.dir else 0
    begin = begin or newest_round(Path(config.fork.parent), config.fork.round)
    return parent.fork.is_on and begin <= parent.fork.round


def newest_round(folder: Path, most: int | None = None) -> int:
    """The round of a run's newest checkpoint, of those up to round `most`; 0 without any."""
    rounds = [int(path.name) for path in saved_checkpoints(folder / CHECKPOINTS)]
    return max((one for one in rounds if most is None or one <= most), default=0)


def as_past(parent: Config, config: Config) -> Config:
    """The parent's settings for rounds that a fork trains by them, into the fork's folder."""
    on = config.checkpoint if config.checkpoint.is_on else CheckpointOptions()
    return replace(
        parent,
        mode=repeating(parent.mode, config.fork.parent),
        checkpoint=replace(on, pause_round=config.fork.round),
        # Of the shared versions the last alone is saved: the fork's curve begins there.
        eval=replace(config.eval, snapshots=0, every=0, validate=Validate.none),
        tracker=config.tracker,
        output=config.output,
    )


def repeating(mode: Mode, folder: str) -> Mode:
    """The mode that repeats a run's rounds: its own, or its schedule where timing decided it."""
    if not mode.is_timed:
        return mode
    return replace(
        mode,
        name="replay",
        weights=WeightPolicy.recorded,
        executor=ExecutorKind.inline,
        num_generators=1,
        on_generator_failure=OnFailure.stop,
        schedule=folder,
    )
