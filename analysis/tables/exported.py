"""Choose the runs to export, each training run once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.differing import JUDGED, by_settings
from rlhf_lab_analysis.tables.frames import Placed
from rlhf_lab_analysis.tables.group_checks import by_condition, compared_settings


@dataclass(frozen=True)
class Exported:
    """A run and the name of its condition: runs with the same environment and condition differ in
    their seeds, and no two of them have the same settings and seed."""

    record: Record
    condition: str


def runs_to_export(records: Sequence[Record]) -> list[Exported]:
    """The runs to export, in their order.

    Names are made of all runs, so that they do not depend on which of two repetitions stays. Of
    runs with the same settings and seed that one is exported whose condition has more seeds, so
    that the larger condition stays whole. Of equally large ones it is the condition with more
    evaluations, then that with the longer name, and of one condition the run with more evaluations.
    """
    runs = by_settings([Placed(record, place_of(record)) for record in records])
    sizes = {name: size_of(members) for name, members in by_condition(runs).items()}
    ranks = [
        (*sizes[run.place.group], len(name), name, len(run.record.evals))
        for run in runs
        for name in [run.place.condition]
    ]
    best: dict[Hashable, int] = {}
    for number, run in enumerate(runs):
        other = best.setdefault(training_of(run), number)
        if ranks[number] > ranks[other]:
            best[training_of(run)] = number
    return [Exported(runs[number].record, ranks[number][3]) for number in sorted(best.values())]


def training_of(run: Placed) -> Hashable:
    """Equal for runs of the same settings and seed, whatever their names are. Runs without a seed
    are all different."""
    if run.place.seed is None:
        return id(run)
    found = compared_settings(run.record.config)
    settings = tuple(sorted(item for item in found.items() if item[0] not in JUDGED))
    return run.place.env, run.place.seeds, settings or run.place.condition


def size_of(condition: Sequence[Placed]) -> tuple[int, int]:
    """How many seeds and evaluations a condition has."""
    return len({run.place.seeds for run in condition}), sum(
        len(run.record.evals) for run in condition
    )
