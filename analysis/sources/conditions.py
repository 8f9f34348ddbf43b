"""Assign each run to an environment and a condition; runs of a condition differ in their seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlhf_lab.experiment.config.groups import option_files
from rlhf_lab.runs.trackers.mirrors import TrackedRun, env_id, exp_name
from rlhf_lab.sweeps.search.runs import TEST, TRIAL
from rlhf_lab_analysis.sources.record import Record, as_seed, cell, look_up

PARTS = ("task", "model", "algo", "mode", "correction", "reward", "proxy")
# N, T, K and S, as the config calls them.
NUMBERS = {
    "updates_per_round": "run.updates_per_round",
    "passes": "run.passes",
    "group_size": "run.group_size",
    "max_staleness": "mode.max_staleness",
}
LETTERS = {"updates_per_round": "N", "passes": "T", "group_size": "K", "max_staleness": "S"}
COLUMNS = ("sweep", "env_id", "exp_name", "condition", "stage_seed", "seed", *PARTS, *NUMBERS)


@dataclass(frozen=True)
class Place:
    """Environment, condition and seed of a run. env: the environment, whose scores are of one
    scale. experiment: its name. condition: the experiment with N, T, K and S. stage_seed: of the
    stages, where it is apart from the seed. extra: the other settings in which runs of the name
    differ (tables.differing)."""

    env: str
    experiment: str
    condition: str
    stage_seed: int | None
    seed: int | None
    parts: Mapping[str, str]
    numbers: Mapping[str, int | None]
    extra: Mapping[str, Any]

    @property
    def group(self) -> tuple[str, str]:
        return self.env, self.condition

    @property
    def seeds(self) -> tuple[int | None, int | None]:
        return self.stage_seed, self.seed


def place_of(record: Record) -> Place:
    """Environment, condition and seed of a run."""
    config, facts = record.config, record.facts
    seed = facts.seed if facts.seed is not None else as_seed(look_up(config, "seed"))
    parts = {part: option_of(config, part) for part in PARTS}
    numbers = {name: as_seed(look_up(config, key)) for name, key in NUMBERS.items()}
    if parts["mode"] == "sync":
        numbers["max_staleness"] = 0
    # Names in the config come first; without them they are derived as rlhf_lab's trackers do.
    tracked = TrackedRun(Path(), config, record.run, job_type_of(record))
    env = str(look_up(config, "env_id") or env_id(tracked))
    experiment = str(look_up(config, "exp_name") or exp_name(tracked, facts.swept))
    labels = [f"{LETTERS[name]}={value}" for name, value in numbers.items() if value is not None]
    labels += fork_labels(config)
    condition = " ".join([experiment or "(no exp_name)", *labels])
    stage_seed = as_seed(look_up(config, "stage_seed")) or None
    return Place(env, experiment, condition, stage_seed, seed, parts, numbers, {})


def fork_labels(config: Mapping[str, Any]) -> list[str]:
    """What a fork adds to the name of its condition: it shares rounds with other settings, so that
    it is no seed of its settings' own condition."""
    if not look_up(config, "fork.parent"):
        return []
    changes = config.get(FORK_CHANGES)
    return [f"{FORKED}{shared_rounds(config)}{f': {changes}' if changes else ''}"]


def fork_in_name(condition: str) -> str:
    """What the name of a condition has from `fork_labels`, with a space before it, else ""."""
    _, is_fork, what = condition.partition(f" {FORKED}")
    return f" {FORKED}{what}" if is_fork else ""


def shared_rounds(config: Mapping[str, Any]) -> int:
    """Rounds that a run shares with the one that it is a fork of; 0 for a run of its own."""
    return as_seed(look_up(config, "fork.round")) or 0


def plain(value: Any) -> Any:
    """A value of a config as a table holds it."""
    return value if value is None or isinstance(value, bool) else cell(value)


# Keys of a record's config, from the manifest of a fork.
FORK_PARENT, FORK_CHANGES = "fork_parent", "fork_changes"
FORKED = "forked at "
TUNING = "tuning"
ROLES = {TRIAL: TUNING, TEST: "test"}


def role_of(record: Record) -> str:
    """What a run was for in a search for hyperparameters: `tuning`, by which the setting was
    chosen, or `test`, on seeds of its own; "" of any other run."""
    swept = record.facts.swept or str(look_up(record.config, "tracker.condition") or "")
    return ROLES.get(swept.partition("=")[0], "")


def job_type_of(record: Record) -> Any:
    """`evaluate` where a run is another one judged again."""
    return "evaluate" if record.facts.job_type == "evaluate" else "train"


def option_of(config: Mapping[str, Any], part: str) -> str:
    """The option chosen for a part of the config; "" where the config lacks the part."""
    chosen = config.get(part)
    if isinstance(chosen, Mapping):
        path = str(chosen.get("path") or "") if part == "reward" else ""
        return reward_of(path) if path else str(chosen.get("name", ""))
    return str(chosen or config.get(f"{part}.name") or "")


def reward_of(path: str) -> str:
    """The name of a reward model that was loaded: the option of conf/reward that has this path,
    such as paper_proxy_1b; else the path's last part, without a revision."""
    return presets().get(path) or Path(path.partition("@")[0]).name


@cache
def presets() -> dict[str, str]:
    """Options of conf/reward by the path that they load."""
    found = {}
    for name, file in option_files("reward").items():
        path = yaml.safe_load(file.read_text(encoding="utf-8")).get("path", "")
        if path and "$" not in path:
            found[path] = name
    return found


def columns(record: Record, place: Place) -> dict[str, Any]:
    """The columns that every table has of a run, in their order."""
    own = {"source": str(record.source), "run": record.run, "sweep": record.facts.sweep}
    own |= {"env_id": place.env, "exp_name": place.experiment, "condition": place.condition}
    seeds = {"stage_seed": place.stage_seed, "seed": place.seed}
    return {**own, **seeds, **place.parts, **place.numbers, **place.extra}
