"""Tell conditions apart by every setting in which their runs differ."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from rlhf_lab_analysis.sources.conditions import plain
from rlhf_lab_analysis.sources.record import look_up
from rlhf_lab_analysis.tables.frames import Placed
from rlhf_lab_analysis.tables.group_checks import by_condition, compared_settings

# Which versions are judged, and where: nothing of it changes the training or a number.
JUDGED = ("eval.snapshots", "eval.every", "eval.device")
UNSET = "unset"
Seeds: TypeAlias = tuple[int | None, int | None]
Settings: TypeAlias = Mapping[str, str]


def by_settings(runs: Sequence[Placed]) -> list[Placed]:
    """The same runs; where runs of one name differ in settings (seeds, paths of outputs and
    trackers left out), the name of the condition has these settings too, so that the runs of a
    condition differ in their seeds alone."""
    keys: dict[tuple[str, str], Sequence[str]] = {}
    values: dict[int, Settings] = {}
    for name, group in by_condition(runs).items():
        settings = [compared_settings(run.record.config) for run in group]
        if differing := distinguishing_keys(group, settings):
            keys[name] = differing
            values |= {id(run): own for run, own in zip(group, settings, strict=True)}
    if not keys:
        return list(runs)
    columns = list(dict.fromkeys(key for found in keys.values() for key in found))
    return [with_settings(run, columns, keys.get(run.place.group, ()), values) for run in runs]


def distinguishing_keys(runs: Sequence[Placed], settings: Sequence[Settings]) -> list[str]:
    """The settings in which runs of one condition differ, whatever their seeds are; one that
    differs only because the seed does is none of them. Each source stores configs in its own form,
    so that runs of different sources are compared at equal seeds alone."""
    compared: dict[Hashable, list[tuple[Seeds, Settings]]] = {}
    for run, own in zip(runs, settings, strict=True):
        seeds = run.place.seeds
        compared.setdefault(run.record.source, []).append((seeds, own))
        compared.setdefault(seeds, []).append((seeds, own))
    found = {key for group in compared.values() for key in differing_keys(group)}
    return sorted(found.difference(JUDGED))


def differing_keys(runs: Sequence[tuple[Seeds, Settings]]) -> Iterator[str]:
    seeds = [own for own, _ in runs]
    for key in {key for _, settings in runs for key in settings}:
        values = [settings.get(key, UNSET) for _, settings in runs]
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


def with_settings(
    run: Placed, columns: Sequence[str], own: Sequence[str], values: Mapping[int, Settings]
) -> Placed:
    """The run with these settings as columns, and its own ones in the name of its condition."""
    extra = {key: plain(look_up(run.record.config, key)) for key in columns}
    texts = [f"{key}={values[id(run)].get(key, UNSET)}" for key in own]
    place = run.place
    name = " ".join([place.condition, *texts])
    return replace(run, place=replace(place, condition=name, extra={**place.extra, **extra}))
