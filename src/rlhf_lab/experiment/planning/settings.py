"""The settings that decide a run's time: read from its manifest, and with other values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from rlhf_lab.rollout.generators.options import GeneratorOptions
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.runs.folder import manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.reading import Unreadable, checked
from rlhf_lab.runs.schema import Amount, Count
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.ranges import require
from rlhf_lab.types.run_options import RunOptions

KEYS = {
    "run.updates": "updates",
    "run.groups_per_update": "groups_per_update",
    "run.updates_per_round": "updates_per_round",
    "run.passes": "passes",
    "run.group_size": "group_size",
    "mode.max_staleness": "max_staleness",
    "mode.num_generators": "num_generators",
    "generator.chunk_groups": "chunk_groups",
}
MODES = {
    "sync": {"max_staleness": 0, "num_generators": 0},
    "lagged": {"max_staleness": 1, "num_generators": 0},
    "async": {"max_staleness": 1, "num_generators": 1},
}


@dataclass(frozen=True)
class Settings:
    """What decides a run's time. num_generators=0: the trainer generates by itself.

    compares: the algorithm trains on a fixed number of a group's rows, whatever their number.
    """

    updates: int
    groups_per_update: int
    updates_per_round: int
    passes: int
    group_size: int
    max_staleness: int
    num_generators: int
    chunk_groups: int
    compares: bool
    oversample: float = 1.0

    def __post_init__(self) -> None:
        for key, part, value in (
            ("generator.chunk_groups", GeneratorOptions, self.chunk_groups),
            ("mode.num_generators", Mode, self.num_generators or 1),
            ("mode.max_staleness", Mode, self.max_staleness),
        ):
            limit = limits.column_of(part, key.partition(".")[2]).range
            assert limit is not None, "numbers have limits"
            require(key, value, limit, is_whole=True)
        if self.compares and self.group_size < 2:
            raise UserError(
                f"run.group_size={self.group_size}: the run's algorithm compares the samples of a "
                "prompt; choose 2 or more"
            )
        rounds = self.recipe.num_rounds
        if self.max_staleness >= rounds > 1:
            raise UserError(
                f"mode.max_staleness={self.max_staleness} with {rounds} rounds: choose 0 to "
                f"{max(1, rounds - 1)}, or raise run.updates"
            )

    @property
    def recipe(self) -> RunOptions:
        """Refuses numbers out of range, and updates that do not make whole rounds."""
        return RunOptions(
            updates=self.updates,
            groups_per_update=self.groups_per_update,
            updates_per_round=self.updates_per_round,
            passes=self.passes,
            group_size=self.group_size,
            oversample=self.oversample,
        )

    @property
    def num_chunks(self) -> int:
        """Chunks of a round."""
        return -(-self.recipe.groups_generated // self.chunk_groups)

    @property
    def chunk_rows(self) -> list[int]:
        """Rows of each chunk of a round."""
        return self.rows_by(self.chunk_groups)

    def coarse_rows(self, most: int) -> list[int]:
        """The same of larger chunks, if a round has more than so many."""
        return self.rows_by(max(self.chunk_groups, -(-self.recipe.groups_generated // most)))

    def rows_by(self, size: int) -> list[int]:
        """Rows of each chunk of so many groups."""
        groups = self.recipe.groups_generated
        return [min(size, groups - start) * self.group_size for start in range(0, groups, size)]

    @property
    def rows(self) -> int:
        """Rows generated in a round."""
        return self.recipe.groups_generated * self.group_size

    @property
    def trained_rows(self) -> int:
        """Rows trained on in a round, up to a constant factor where the algorithm compares."""
        per_group = 1 if self.compares else self.group_size
        return self.recipe.groups_per_round * self.passes * per_group


class SettingsRow(TypedDict):
    """The settings as a manifest has them."""

    updates: Count
    groups_per_update: Count
    updates_per_round: Count
    passes: Count
    group_size: Count
    max_staleness: Count
    num_generators: Count
    chunk_groups: Count
    compares: bool
    oversample: Amount


class Planned(TypedDict):
    settings: dict[str, Any]


def settings_of(folder: Path) -> Settings:
    path = manifest_path(folder)
    try:
        settings = checked(read_manifest(path), Planned, path)["settings"]
        if settings.get("segment_tokens"):
            raise UserError(
                f"{folder} has partial rollouts (segments of {settings['segment_tokens']} tokens "
                "or turns), whose timeline follows from the lengths of its samples: pass a run of "
                "mode=async"
            )
        if settings.pop("is_virtual", False):
            raise UserError(
                f"{folder} trained on a virtual cluster: its clock is in schedule.jsonl and in "
                "virtual_seconds/* of its metrics; pass a run of mode=async"
            )
        # Runs from before groups could be oversampled did not.
        whole = checked({"oversample": 1.0, **settings}, SettingsRow, path, "key settings")
    except Unreadable as error:
        raise UserError(
            f"{error}: it has no settings to plan from (it is damaged, or older than this "
            "command): train again, a few rounds suffice"
        ) from error
    return Settings(**whole)


def grid(arguments: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Every combination of comma-separated values, with a label; nothing for no arguments."""
    values: dict[str, list[str]] = {}
    for argument in arguments:
        key, equals, given = argument.partition("=")
        if not equals or key not in (*KEYS, "mode"):
            raise UserError(f"{argument}: pass KEY=VALUE with KEY one of {', '.join(KEYS)}, mode")
        values[key] = given.split(",")
    if values:
        for combination in product(*values.values()):
            change = dict(zip(values, combination, strict=True))
            yield " ".join(f"{key}={value}" for key, value in change.items()), change


def changed(own: Settings, change: Mapping[str, str]) -> Settings:
    """A run's settings with other values; mode=... gives those of the mode's own config file."""
    numbers = {KEYS[key]: integer(key, text) for key, text in change.items() if key != "mode"}
    if numbers.get("num_generators") == 0:
        raise UserError("mode.num_generators=0: choose 1 or more, or pass mode=sync or mode=lagged")
    given: dict[str, Any] = asdict(own) | numbers
    if "mode" in change:
        given |= of_mode(change["mode"], numbers)
    return Settings(**given)


def of_mode(mode: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """Staleness and generators of a mode, where other numbers are given too."""
    if mode not in MODES:
        raise UserError(f"mode={mode} cannot be planned: choose {', '.join(MODES)}")
    chosen = MODES[mode] | {key: numbers[key] for key in MODES[mode] if key in numbers}
    if mode == "sync" and chosen["max_staleness"]:
        raise UserError(
            f"mode.max_staleness={chosen['max_staleness']} with mode=sync: sync means 0; "
            "pass mode=lagged or mode=async"
        )
    if mode != "async":
        if chosen["num_generators"] > 1:
            raise UserError(
                f"mode.num_generators={chosen['num_generators']} with mode={mode}: the trainer "
                "generates by itself; pass mode=async"
            )
        chosen["num_generators"] = 0
    return chosen


def integer(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UserError(f"{key}={text}: pass a whole number, or several with commas") from error
