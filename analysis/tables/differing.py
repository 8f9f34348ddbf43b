"""Tell conditions apart by every setting in which their runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlhf_lab_analysis.sources.conditions import plain
from rlhf_lab_analysis.sources.record import look_up
from rlhf_lab_analysis.tables.frames import Placed
from rlhf_lab_analysis.tables.group_checks import by_condition, compared_settings

# Which versions are judged, and where: nothing of it changes the training or a number.
JUDGED = ("eval.snapshots", "eval.every", "eval.device")


def by_settings(runs: Sequence[Placed]) -> list[Placed]:
    """The same runs; where runs of one name differ in settings (seeds, paths of outputs and
    trackers left out), the name of the condition has these settings too, so that the runs of a
    condition differ in their seeds alone."""
    keys: dict[tuple[str, str], tuple[str, ...]] = {}
    values: dict[int, Mapping[str, str]] = {}
    for name, group in by_condition(runs).items():
        settings = [compared_settings(run.record.config) for run in group]
        if differing := differing_keys(group, settings):
            keys[name] = differing
            values |= {id(run): own for run, own in zip(group, settings, strict=True)}
    if not keys:
        return list(runs)
    columns = list(dict.fromkeys(key for found in keys.values() for key in found))
    return [with_settings(run, columns, keys.get(run.place.group, ()), values) for run in runs]


def differing_keys(
    group: Sequence[Placed], settings: Sequence[Mapping[str, str]]
) -> tuple[str, ...]:
    """The settings in which runs of one source differ: each source stores configs in its own
    form."""
    found: set[str] = set()
    for source in {run.record.source for run in group}:
        same = [
            own for run, own in zip(group, settings, strict=True) if run.record.source is source
        ]
        found |= {key for key in set().union(*same) if len({own.get(key) for own in same}) > 1}
    return tuple(sorted(found.difference(JUDGED)))


def with_settings(
    run: Placed,
    columns: Sequence[str],
    own: Sequence[str],
    values: Mapping[int, Mapping[str, str]],
) -> Placed:
    """The run with these settings as columns, and its own ones in the name of its condition."""
    extra = {key: plain(look_up(run.record.config, key)) for key in columns}
    texts = [f"{key}={values[id(run)].get(key, 'unset')}" for key in own]
    place = run.place
    name = " ".join([place.condition, *texts])
    return replace(run, place=replace(place, condition=name, extra={**place.extra, **extra}))
