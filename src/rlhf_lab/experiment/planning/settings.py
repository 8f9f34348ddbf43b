"""The settings that decide a run's time, and how they are read from its manifest."""

from __future__ import annotations

from dataclasses import dataclass
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
