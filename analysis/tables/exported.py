"""Choose the runs to export, each training run once, and name their conditions so that runs of
different settings have different names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from rlhf_lab_analysis.sources.conditions import Place, place_of
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.group_checks import compared_settings

# How often a run was evaluated changes nothing in it.
NOT_OF_TRAINING = ("eval.snapshots",)
Settings = dict[str, str]


@dataclass(frozen=True)
class Exported:
    """A run and the name of its condition: runs with the same environment and condition differ in
    their seeds, and no two of them have the same settings and seed."""

    record: Record
    condition: str


def runs_to_export(records: Sequence[Record], by: Sequence[str] = ()) -> list[Exported]:
    """The runs to export, in their order. Of runs with the same settings and seed, in two sweeps,
    the one with the most evaluations is exported. by: as in `place_of`."""
    kept = drop_repetitions(records)
    places = [place_of(record, by) for record in kept]
    groups: dict[tuple[str, str], list[int]] = {}
    for number, place in enumerate(places):
        groups.setdefault(place.group, []).append(number)
    names = {}
    for numbers in groups.values():
        settings = {number: settings_of(kept[number]) for number in numbers}
        keys = distinguishing_keys(settings, places)
        for number in numbers:
            own = [f"{key}={settings[number].get(key, 'unset')}" for key in keys]
            names[number] = " ".join([places[number].condition, *own])
    return [Exported(record, names[number]) for number, record in enumerate(kept)]


def drop_repetitions(records: Sequence[Record]) -> list[Record]:
    """The runs without repetitions of the same settings and seed. Runs without a seed all stay."""
    best: dict[object, Record] = {}
    for record in records:
        key = key_of(record)
        if key not in best or len(record.evals) > len(best[key].evals):
            best[key] = record
    stays = {id(record) for record in best.values()}
    return [record for record in records if id(record) in stays]


def key_of(record: Record) -> object:
    """A key that is equal for runs of the same settings and seed, whatever their names are."""
    place, settings = place_of(record), settings_of(record)
    if place.seed is None:
        return id(record)
    return place.env, place.seeds, tuple(sorted(settings.items())) or place.condition


def settings_of(record: Record) -> Settings:
    found = compared_settings(record.config)
    return {key: value for key, value in found.items() if key not in NOT_OF_TRAINING}


def distinguishing_keys(settings: dict[int, Settings], places: Sequence[Place]) -> list[str]:
    """The keys in which runs of one condition and seed differ: without them in the name, runs of
    several settings would be averaged. A key that differs only between seeds is a finding."""
    keys: set[str] = set()
    for one, other in combinations(settings, 2):
        if places[one].seeds == places[other].seeds:
            keys |= {key for key, _ in {*settings[one].items()} ^ {*settings[other].items()}}
    return sorted(keys)
