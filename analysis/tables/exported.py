"""Choose the runs to export, each training run once, and name their conditions so that runs of
different settings have different names."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.sources.conditions import Place, place_of
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.group_checks import compared_settings

# How often a run was evaluated changes nothing in it.
NOT_OF_TRAINING = ("eval.snapshots", "eval.every", "eval.device")
UNSET = "unset"
Settings = dict[str, str]
Seeds = tuple[int | None, int | None]


@dataclass(frozen=True)
class Exported:
    """A run and the name of its condition: runs with the same environment and condition differ in
    their seeds, and no two of them have the same settings and seed."""

    record: Record
    condition: str


@dataclass(frozen=True)
class Candidate:
    """A run with its place and its settings, from which its exported name is made."""

    record: Record
    place: Place
    settings: Settings

    @property
    def training(self) -> Hashable:
        """Equal for runs of the same settings and seed, whatever their names are. Runs without a
        seed are all different."""
        if self.place.seed is None:
            return id(self.record)
        settings = tuple(sorted(self.settings.items()))
        return self.place.env, self.place.seeds, settings or self.place.condition


def runs_to_export(records: Sequence[Record], by: Sequence[str] = ()) -> list[Exported]:
    """The runs to export, in their order. by: as in `place_of`.

    Names are made of all runs, so that they do not depend on which of two repetitions stays. Of
    runs with the same settings and seed that one is exported whose condition has more seeds, so
    that the larger condition stays whole. Of equally large ones it is the condition with more
    evaluations, then that with the longer name, and of one condition the run with more evaluations.
    """
    runs = [Candidate(one, place_of(one, by), settings_of(one)) for one in records]
    names = names_of(runs)
    conditions: dict[tuple[str, str], list[Candidate]] = {}
    for run, name in zip(runs, names, strict=True):
        conditions.setdefault((run.place.env, name), []).append(run)
    sizes = {key: size_of(members) for key, members in conditions.items()}
    ranks = [
        (*sizes[run.place.env, name], len(name), name, len(run.record.evals))
        for run, name in zip(runs, names, strict=True)
    ]
    best: dict[Hashable, int] = {}
    for number, run in enumerate(runs):
        other = best.setdefault(run.training, number)
        if ranks[number] > ranks[other]:
            best[run.training] = number
    return [Exported(records[number], names[number]) for number in sorted(best.values())]


def size_of(condition: Sequence[Candidate]) -> tuple[int, int]:
    """How many seeds and evaluations a condition has."""
    seeds = {run.place.seeds for run in condition}
    return len(seeds), sum(len(run.record.evals) for run in condition)


def settings_of(record: Record) -> Settings:
    found = compared_settings(record.config)
    return {key: value for key, value in found.items() if key not in NOT_OF_TRAINING}


def names_of(runs: Sequence[Candidate]) -> list[str]:
    """The name of each run's condition, with the keys in which runs of that condition differ."""
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for run in runs:
        groups.setdefault(run.place.group, []).append(run)
    keys = {group: distinguishing_keys(members) for group, members in groups.items()}
    names = []
    for run in runs:
        own = [f"{key}={run.settings.get(key, UNSET)}" for key in keys[run.place.group]]
        names.append(" ".join([run.place.condition, *own]))
    return names


def distinguishing_keys(runs: Sequence[Candidate]) -> list[str]:
    """The keys in which runs of one condition differ, whatever their seeds are: without them in the
    name, runs of several settings would be averaged. A key that differs only because the seed does
    is none of them. Each source stores configs in its own form, so that runs of different sources
    are compared at equal seeds alone."""
    compared: dict[Hashable, list[Candidate]] = {}
    for run in runs:
        compared.setdefault(run.record.source, []).append(run)
        compared.setdefault(run.place.seeds, []).append(run)
    return sorted({key for group in compared.values() for key in differing_keys(group)})


def differing_keys(runs: Sequence[Candidate]) -> Iterator[str]:
    seeds = [run.place.seeds for run in runs]
    for key in {key for run in runs for key in run.settings}:
        values = [run.settings.get(key, UNSET) for run in runs]
        if len({*values}) > 1 and not follows_seed(values, seeds):
            yield key


def follows_seed(values: Sequence[str], seeds: Sequence[Seeds]) -> bool:
    """Whether the values are one to one with the seeds or the stage seeds, such as the path of a
    fork's parent. Numbers and switches count as settings unless they equal the seed."""
    for own in (*zip(*seeds, strict=True), seeds):
        if [*map(str, own)] == [*values]:
            return True
        is_own = len({*zip(own, values, strict=True)}) == len({*own}) == len({*values})
        if is_own and not any(map(is_number, values)):
            return True
    return False


def is_number(value: str) -> bool:
    """Whether a text stands for a number or a switch."""
    try:
        float(value)
    except ValueError:
        return value in ("True", "False")
    return True
