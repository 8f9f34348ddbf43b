"""What of a selection is exported, and as which condition: each training run once, and runs of
unlike settings under unlike names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from analysis.sources.conditions import Place, place_of
from analysis.sources.record import Record
from analysis.tables.group_checks import compared

# How often a run was evaluated changes nothing in it.
NOT_OF_TRAINING = ("eval.snapshots",)
Settings = dict[str, str]


@dataclass(frozen=True)
class Exported:
    """A run and the name of its condition: of one environment and name are runs that differ in
    their seed, and no two of them in their seed alone."""

    record: Record
    condition: str


def exported(records: Sequence[Record], by: Sequence[str] = ()) -> list[Exported]:
    """The runs to export, in their order. Of those with the settings and the seed of another one,
    in a second sweep, that with the most evaluations stays. by: as in `place_of`."""
    kept = each_once(records)
    places = [place_of(record, by) for record in kept]
    groups: dict[tuple[str, str], list[int]] = {}
    for number, place in enumerate(places):
        groups.setdefault(place.group, []).append(number)
    names = {}
    for numbers in groups.values():
        settings = {number: settings_of(kept[number]) for number in numbers}
        keys = told_apart_by(settings, places)
        for number in numbers:
            own = [f"{key}={settings[number].get(key, 'unset')}" for key in keys]
            names[number] = " ".join([places[number].condition, *own])
    return [Exported(record, names[number]) for number, record in enumerate(kept)]


def each_once(records: Sequence[Record]) -> list[Record]:
    """The runs without those that are another one again. A run without a seed is no other one."""
    best: dict[object, Record] = {}
    for record in records:
        key = key_of(record)
        if key not in best or len(record.evals) > len(best[key].evals):
            best[key] = record
    stays = {id(record) for record in best.values()}
    return [record for record in records if id(record) in stays]


def key_of(record: Record) -> object:
    """What a run shares with a run of the same settings and seed, whatever both are called."""
    place, settings = place_of(record), settings_of(record)
    if place.seed is None:
        return id(record)
    return place.env, place.seed, tuple(sorted(settings.items())) or place.condition


def settings_of(record: Record) -> Settings:
    found = compared(record.config)
    return {key: value for key, value in found.items() if key not in NOT_OF_TRAINING}


def told_apart_by(settings: dict[int, Settings], places: Sequence[Place]) -> list[str]:
    """The keys in which runs of one condition and seed differ: without them in the name, runs of
    several settings would be averaged. What differs between seeds alone is a finding."""
    keys: set[str] = set()
    for one, other in combinations(settings, 2):
        if places[one].seed == places[other].seed:
            keys |= {key for key, _ in {*settings[one].items()} ^ {*settings[other].items()}}
    return sorted(keys)
