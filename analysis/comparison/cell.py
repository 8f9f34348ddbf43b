"""A condition: its runs over seeds, and their numbers."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import pandas as pd
from pandas.api.types import is_numeric_dtype

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.record import look_up
from rlhf_lab_analysis.statistics.curves import RunCurve, curve_of
from rlhf_lab_analysis.tables.differing import JUDGED
from rlhf_lab_analysis.tables.group_checks import compared_settings

STAGES = ("stage/sft_loss", "stage/proxy_accuracy")
Key: TypeAlias = tuple[str, str, str]
Seeds: TypeAlias = tuple[int, int]
Training: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, eq=False)
class Member:
    """A run of a condition. row: of the tables' runs. versions: its evaluated versions. points: its
    recorded rounds. final: its last version on more prompts, None if it has not been judged on
    these."""

    row: Mapping[str, Any]
    versions: pd.DataFrame
    points: pd.DataFrame
    final: pd.DataFrame | None = None

    @cached_property
    def stages(self) -> dict[str, float]:
        """What evaluations recorded of the stages that the run began with."""
        known = {key: self.versions[key].dropna() for key in STAGES if key in self.versions}
        return {key: float(column.iloc[0]) for key, column in known.items() if len(column)}


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one condition in one environment and sweep, which differ in their seeds alone.

    parts: task, model, algo, mode, correction, reward, proxy, N, T, K and S by their column, and
    the other settings that distinguish conditions. members: the runs by stage seed (0 for a run
    without `stage_seed`) and RL seed. Where runs have a stage seed, all other attributes are
    indexed by it and their numbers are means over its RL seeds, since runs that share stages are
    not independent.
    """

    sweep: str
    env: str
    condition: str
    parts: Mapping[str, Any]
    members: Mapping[Seeds, Member]
    _restricted: dict[frozenset[Seeds], Cell] = field(default_factory=dict, init=False)

    def restricted(self, kept: Set[Seeds]) -> Cell:
        """The same condition with only some of its runs: itself where these are all."""
        own = frozenset(self.members) & kept
        if own == frozenset(self.members):
            return self
        if own not in self._restricted:
            members = {seeds: one for seeds, one in self.members.items() if seeds in own}
            self._restricted[own] = replace(self, members=members)
        return self._restricted[own]

    @cached_property
    def groups(self) -> dict[int, list[Member]]:
        """The runs of each stage seed (each seed, without one), in order of their RL seeds."""
        found: dict[int, list[Member]] = {}
        for (stage_seed, seed), one in sorted(self.members.items(), key=lambda one: one[0]):
            found.setdefault(stage_seed or seed, []).append(one)
        return found

    @cached_property
    def runs(self) -> dict[int, Mapping[str, Any]]:
        """For each seed the row of its first run in the tables."""
        return {seed: every[0].row for seed, every in self.groups.items()}

    @cached_property
    def rows(self) -> dict[int, pd.DataFrame]:
        """The evaluated versions of each seed."""
        return {
            seed: mean_of([one.versions for one in every], "version")
            for seed, every in self.groups.items()
        }

    @cached_property
    def recorded(self) -> dict[int, pd.DataFrame]:
        """The recorded rounds of each seed."""
        return {seed: mean_of([one.points for one in every]) for seed, every in self.groups.items()}

    @cached_property
    def finals(self) -> dict[int, pd.DataFrame]:
        """Of seeds that have it, the last version's row on more prompts (eval.last_prompts)."""
        found = {
            seed: [one.final for one in every if one.final is not None]
            for seed, every in self.groups.items()
        }
        return {
            seed: mean_of(finals, "version")
            for seed, finals in found.items()
            if len(finals) == len(self.groups[seed])
        }

    @property
    def num_runs(self) -> int:
        return len(self.members)

    def runs_of(self, seeds: Sequence[int]) -> int:
        """How many runs these seeds have."""
        return sum(len(self.groups[seed]) for seed in seeds)

    @property
    def unit(self) -> str:
        """What `seeds` are: of the stages, or of the runs."""
        return "stage seed" if next(iter(self.members))[0] else "seed"

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted(self.groups))

    @property
    def key(self) -> Key:
        """Sweep, environment and condition, which no other cell has."""
        return self.sweep, self.env, self.condition

    @cached_property
    def configs(self) -> dict[int, Mapping[str, Any]]:
        """Of each seed."""
        return {seed: json.loads(row["config"]) for seed, row in self.runs.items()}

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings of the runs by dotted key, in order, without seeds and without JUDGED."""
        found = compared_settings(self.configs[self.seeds[0]])
        return {key: found[key] for key in sorted(found) if key not in JUDGED}

    @cached_property
    def setting_items(self) -> tuple[tuple[str, str], ...]:
        """The same as pairs."""
        return tuple(self.settings.items())

    @property
    def training(self) -> Training:
        """Environment and settings, which conditions of the same training have in common, in
        whichever sweep they are."""
        return self.env, self.setting_items

    def config(self, key: str) -> Any:
        """The value that all seeds have at a dotted key, None if none has it.

        Raises UserError if they differ.
        """
        values = [look_up(config, key) for config in self.configs.values()]
        found = {str(value): value for value in values}
        if len(found) > 1:
            raise UserError(f"{self.condition}: {key} is {' and '.join(found)} in runs of it")
        return next(iter(found.values()))

    def scores(self, metric: str) -> dict[int, float]:
        """The metric of the last evaluated version, by seed; on more prompts if it has been judged
        on these too (`finals`).

        Raises UserError if a run has none, or it is NaN.
        """
        return {seed: self._numbers(seed, metric, at_end=True)[-1] for seed in self.seeds}

    def starts(self, metric: str) -> dict[int, float]:
        """The metric of version 0, which is SFT, by seed."""
        return {seed: self._numbers(seed, metric)[0] for seed in self.seeds}

    def curves(self, x: str, y: str) -> dict[int, RunCurve]:
        """y over x at the evaluated versions, by seed: both columns of `versions`.

        A metric as x, such as a KL, may turn back: then use `paths`.
        """
        return {
            seed: curve_of(f"{self.condition}, seed {seed}", xs, ys)
            for seed, (xs, ys) in self.paths(x, y).items()
        }

    def paths(self, x: str, y: str) -> dict[int, tuple[list[float], list[float]]]:
        """x and y at the evaluated versions in order, by seed."""
        return {seed: (self._numbers(seed, x), self._numbers(seed, y)) for seed in self.seeds}

    def at_end(self, axis: str) -> dict[int, float]:
        """What a run had cost when its last evaluated version was ready, by seed."""
        return {seed: self._numbers(seed, axis)[-1] for seed in self.seeds}

    def last_recorded(self, metric: str) -> dict[int, float]:
        """The last recorded value of a metric of the points, by seed; runs without it are left
        out. Seconds and totals are sums from the start, so this is the whole run's."""
        found = {
            seed: rows[metric].dropna()
            for seed, rows in self.recorded.items()
            if has_numbers(rows, metric)
        }
        return {seed: float(column.iloc[-1]) for seed, column in found.items() if len(column)}

    def has(self, column: str) -> bool:
        """Whether every run has numbers in a column of `versions` at all of them."""
        frames = self.rows.values()
        return all(has_numbers(rows, column) and not rows[column].isna().any() for rows in frames)

    def at_the_end(self, seed: int) -> pd.DataFrame:
        """The evaluated versions of a seed, the last one by its evaluation on more prompts if it
        has one: what conditions are compared by at their end."""
        rows, final = self.rows[seed], self.finals.get(seed)
        if final is None or not len(rows):
            return rows
        whole = final.reindex(columns=rows.columns)
        return pd.concat([rows.iloc[:-1], whole]) if len(rows) > 1 else whole

    def _numbers(self, seed: int, column: str, at_end: bool = False) -> list[float]:
        rows, final = self.rows[seed], self.finals.get(seed) if at_end else None
        if not has_numbers(rows, column):
            there = list(rows.select_dtypes("number"))
            raise UserError(f"{column}: {self.condition} has no such numbers; it has {there}")
        values = [float(value) for value in rows[column]]
        if final is not None and values:
            # As at_the_end, of which other columns would be thrown away.
            values[-1] = float(final[column].iloc[0]) if column in final else math.nan
        if any(math.isnan(value) for value in values):
            versions = [int(v) for v, x in zip(rows["version"], values, strict=True) if x != x]
            raise UserError(
                f"{column} of {self.runs[seed]['place']} is NaN at versions {versions}: leave the "
                "run out, or choose another metric"
            )
        return values


def has_numbers(rows: pd.DataFrame, column: str) -> bool:
    """Whether a table has a column, and not one of texts."""
    return column in rows and is_numeric_dtype(rows[column])


def with_common_seeds(*compared: Cell) -> tuple[Cell, ...]:
    """The same conditions, in each stage seed with the runs of the seeds that all of them have
    there: what they are compared by. A stage seed of which they have no seed in common keeps its
    runs: the stages are common."""
    shared = set.intersection(*(set(one.members) for one in compared))
    stages = {stage for stage, _ in shared if stage}
    return tuple(
        one.restricted(
            {seeds for seeds in one.members if seeds in shared or seeds[0] not in stages}
        )
        for one in compared
    )


def mean_of(frames: Sequence[pd.DataFrame], key: str = "") -> pd.DataFrame:
    """The mean of the numbers of several runs, row by row, or by a key that rows share; texts are
    those of the first. Rows that not all runs have are left out."""
    if len(frames) == 1:
        return frames[0]
    keyed = [frame.set_index(frame[key] if key else pd.RangeIndex(len(frame))) for frame in frames]
    common = functools.reduce(lambda one, other: one.intersection(other), (k.index for k in keyed))
    # All columns of a frame at once, of which there are many.
    aligned = [frame.loc[common] for frame in keyed]
    first = aligned[0].copy()
    for name in first.select_dtypes("float64").columns:
        values = [frame[name] for frame in aligned if name in frame]
        first[name] = sum(values) / len(values)
    return first.reset_index(drop=True)
