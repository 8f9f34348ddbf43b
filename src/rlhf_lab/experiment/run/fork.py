"""The past of a fork, and what a fork may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rlhf_lab.evaluation.options import Validate
from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.run.outputs import CHECKPOINTS
from rlhf_lab.rollout.mode import ExecutorKind, Mode, OnFailure, WeightPolicy
from rlhf_lab.runs.folder import SCHEDULE, manifest_path
from rlhf_lab.runs.identity import ASIDE, flat, is_below
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.training.checkpoint_files import saved_checkpoints
from rlhf_lab.training.checkpoint_options import CheckpointOptions
from rlhf_lab.types import limits
from rlhf_lab.types.data import Objective
from rlhf_lab.types.errors import UserError

# What a run reports and how it is judged changes no bit of what it learns.
BESIDE = (*ASIDE, "fork", "judge")
# Of chunks that are written in segments, later versions continue what is begun.
BEGUN = (
    *("generator", "reward", "shaping", "episodes"),
    *("mode.segment_tokens", "mode.segment_turns"),
)

Pair = tuple[Any, Any]
ReadConfig = Callable[[Path], Config]


def changes_between(parent: Config, config: Config) -> dict[str, Pair]:
    """The settings in which a fork differs from its parent: key -> (parent's, fork's), None for a
    key that one of them lacks. Names of the modes of a repeated schedule are left out."""
    before, after = flat(plain(parent)), flat(plain(config))
    if repeats(config):
        after |= {key: value for key, value in before.items() if key.startswith("mode.")}
    keys = [key for key in dict.fromkeys([*before, *after]) if not is_below(key, BESIDE)]
    pairs = {key: (before.get(key), after.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def repeats(config: Config) -> bool:
    """Whether a fork goes along the recorded schedule of its parent."""
    return config.mode.is_replay and config.mode.schedule == config.fork.parent


def reason_against(key: str, *configs: Config) -> str:
    """Why a fork cannot change a key; "" if it can. The metadata of the option decides, else that
    of its node."""
    node, _, rest = key.partition(".")
    nodes = {column.name: column for column in fields(Config)}
    held = [getattr(config, node) for config in configs if rest and node in nodes]
    options = [column for part in held for column in fields(part)]
    own = [column for column in options if column.name == rest.partition(".")[0]]
    for column in (*own, *(nodes[name] for name in [node] if name in nodes)):
        if limits.FORK in column.metadata:
            return str(column.metadata[limits.FORK])
    return "the shared rounds followed it"


def require_possible(
    parent: Config, config: Config, changes: Mapping[str, Pair], folder: Path
) -> None:
    """Raise UserError for a change that would have changed the shared rounds, or that what they
    left (optimizer, chunks on their way) does not allow."""
    for key, (before, after) in changes.items():
        if reason := reason_against(key, config, parent):
            refuse(config, key, f"{before} in {folder}", after, reason)
    require_same_state(parent, config, folder)
    require_rows(config)
    if config.fork.round:
        require_same_queue(parent, config, changes, folder)
        require_finished_samples(parent, config, changes, folder)
        require_rounds(parent, config, folder)
        require_no_drops(parent, config, folder)


def refuse(config: Config, key: str, before: str, after: Any, reason: str) -> None:
    raise UserError(
        f"{key}={after}, but {before}: a fork at round {config.fork.round} cannot change it, since "
        f"{reason}; leave it out, or train a run of its own with it"
    )


def require_same_state(parent: Config, config: Config, folder: Path) -> None:
    """Refuse an algorithm whose optimizer, value model, reference or samples the state lacks."""
    was, now = parent.algo.needs, config.algo.needs
    facts = {
        "a value model of the same kind": (was.values, was.bins) == (now.values, now.bins),
        "a reference that moves, or one that does not": bool(was.reference_every)
        == bool(now.reference_every),
        "a greedy sample in each group": was.greedy == now.greedy,
        "the same teacher": was.teacher == now.teacher,
    }
    for what, is_equal in facts.items():
        if not is_equal:
            reason = f"its state has no place for it: both must have {what}, or neither"
            refuse(config, "algo", f"{parent.algo.name} in {folder}", config.algo.name, reason)
    if parent.generator.draws_samples != config.generator.draws_samples:
        reason = "one of them draws samples and the other has fixed pairs"
        before = f"{parent.generator.name} in {folder}"
        refuse(config, "generator", before, config.generator.name, reason)


def require_rows(config: Config) -> None:
    """Refuse to leave out rows that a round cannot have, or one side of a comparison."""
    rows, size = set(config.fork.without_rows), config.run.group_size
    most = config.run.groups_per_round * size
    if rows and max(rows) >= most:
        raise UserError(
            f"fork.without_rows={max(rows)}: a round has {most} rows; choose 0 to {most - 1}"
        )
    whole = {row // size * size + place for row in rows for place in range(size)}
    if config.algo.objective is Objective.comparison and rows != whole:
        raise UserError(
            f"fork.without_rows={min(whole - rows)} is missing with algo={config.algo.name}: its "
            f"loss compares the samples of a prompt; leave out all {size} rows of a group"
        )


def require_finished_samples(
    parent: Config, config: Config, changes: Mapping[str, Pair], folder: Path
) -> None:
    """Refuse other sampling where samples on their way are continued after the fork's round."""
    if not parent.mode.segment_steps:
        return
    reason = "samples that are begun are continued by the versions after the fork's round"
    for key, (before, after) in changes.items():
        if is_below(key, BEGUN):
            refuse(config, key, f"{before} in {folder}", after, reason)
    if config.mode.max_staleness < parent.mode.max_staleness:
        before = f"{parent.mode.max_staleness} in {folder}"
        refuse(config, "mode.max_staleness", before, config.mode.max_staleness, reason)


def require_same_queue(
    parent: Config, config: Config, changes: Mapping[str, Pair], folder: Path
) -> None:
    """Refuse another mode where what is on its way is not chunks of fixed rounds."""
    kinds = [(one.mode.is_virtual, one.mode.recycles_groups) for one in (parent, config)]
    if not any(any(kind) for kind in kinds):
        return
    reason = (
        "a virtual cluster's events, or groups that move from round to round, cannot be taken over"
    )
    for key, (before, after) in changes.items():
        if is_below(key, ("mode",)):
            refuse(config, key, f"{before} in {folder}", after, reason)


def require_rounds(parent: Config, config: Config, folder: Path) -> None:
    """Refuse an end before chunks on their way are used."""
    ahead = 0 if parent.mode.uses_latest_weights else parent.mode.max_staleness
    least = min(config.fork.round + ahead + 1, parent.run.num_rounds)
    if config.run.num_rounds < least:
        raise UserError(
            f"run.updates={config.run.updates}: chunks of {folder} are on their way up to round "
            f"{least}; pass {least * config.run.optimizer_steps_per_round} or more"
        )


def require_no_drops(parent: Config, config: Config, folder: Path) -> None:
    """Refuse another mode after drops, by which prompts belong to later rounds than else."""
    if config.mode.uses_latest_weights or config.mode.is_replay:
        return
    rows = read_rows(folder / SCHEDULE) if parent.mode.uses_latest_weights else ()
    if any(row["dropped"] for row in rows if row["round"] < config.fork.round):
        reason = "samples were dropped before, so that prompts no longer belong to fixed rounds"
        before = f"mode={parent.mode.name} in {folder}"
        refuse(config, "mode", before, config.mode.name, reason)


@dataclass(frozen=True)
class Past:
    """A stretch of rounds of one config, to `until` (0: to its end).

    was_timed: whether the checkpoints that it begins from are of a run whose timing decided which
    version wrote what. keeps_coefficient: whether it keeps the adapted KL coefficient of the
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
        name="recorded",
        weights=WeightPolicy.recorded,
        executor=ExecutorKind.inline,
        num_generators=1,
        on_generator_failure=OnFailure.stop,
        schedule=folder,
    )
