"""Select runs and make their tables: points, versions, runs, and findings on their faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.filters import ALL, Filters, is_chosen
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import MAPPINGS, Reading, Record, Source
from rlhf_lab_analysis.tables.all_checks import findings_of
from rlhf_lab_analysis.tables.completed import completed
from rlhf_lab_analysis.tables.differing import by_settings
from rlhf_lab_analysis.tables.frames import (
    Placed,
    metric_names,
    points_frame,
    runs_frame,
    versions_frame,
)

KNOWS_MOST = list(Source)


@dataclass(frozen=True)
class Tables:
    """points: a row per run and recorded point. versions: per run and evaluated version. runs: per
    run. findings: every fault. The column `run` identifies the run in all three tables."""

    points: pd.DataFrame
    versions: pd.DataFrame
    runs: pd.DataFrame
    findings: tuple[Finding, ...]

    @property
    def overview(self) -> str:
        """How many runs and seeds, and which."""
        return selection_size(self.runs)

    def only(self, **wanted: Any) -> Tables:
        """The runs whose columns have these values, or one of several: `only(algo="ppo", seed=[1,
        2])`. Raises UserError on a column that there is not, and if no run is left."""
        held = pd.Series(True, index=self.runs.index)
        for name, values in wanted.items():
            if name not in self.runs:
                raise UserError(f"{name}={values}: runs have {listing(list(self.runs))}")
            allowed = values if isinstance(values, list | tuple) else [values]
            left = held & self.runs[name].isin(allowed)
            if not left.any():
                there = sorted({str(value) for value in self.runs.loc[held, name]})
                raise UserError(
                    f"{name}={values}: no run of {self.overview} has it; {name} is one of "
                    f"{listing(there)}"
                )
            held = left
        runs = self.runs[held].reset_index(drop=True)
        ids = set(runs["run"])
        points, versions = (
            frame[frame["run"].isin(ids)].reset_index(drop=True)
            for frame in (self.points, self.versions)
        )
        return Tables(points, versions, runs, tuple(f for f in self.findings if f.run in ids))


def make_tables(reading: Reading, filters: Filters = ALL, metrics: Sequence[str] = ()) -> Tables:
    """Tables of the runs that the filters choose.

    metrics: names to keep, all if empty. Raises UserError if no run is left, or none has any of the
    metrics, and names those that exist and what was wrong with the others.
    """
    wanted, dropped = select(reading, filters)
    placed = place_runs(wanted)
    names = sorted(set[str]().union(*(n for run in placed for n in metric_names(run.record))))
    if metrics and not set(metrics) & set(names):
        known = (one for run in placed for one in run.record.findings)
        why = next((one for one in known if any(name in one.what for name in metrics)), None)
        raise UserError(
            f"--metric {', '.join(metrics)}: no run has it; there are {listing(names)}"
            + (f"; {why.line}" if why else "")
        )
    selected = {run.record.run for run in placed}
    found = [*reading.findings, *(one for one in dropped if one.run in selected)]
    found += findings_of(placed, metrics)
    return Tables(
        points_frame(placed, metrics),
        versions_frame(placed, metrics),
        runs_frame(placed, found),
        tuple(dict.fromkeys(found)),
    )


def select(reading: Reading, filters: Filters) -> tuple[list[Record], list[Finding]]:
    """The runs that the filters choose, each once, and a finding for each duplicate left out.
    Raises UserError if no run is chosen."""
    kept, findings = drop_duplicates(reading.records)
    wanted = [one for one in kept if is_chosen(one, filters)]
    if not wanted:
        raise UserError(no_match_message(kept, filters, reading.findings))
    return completed(wanted), findings


def drop_duplicates(records: Sequence[Record]) -> tuple[list[Record], list[Finding]]:
    """Every run once, from the source that knows most of it, and a finding for each one left out.
    Runs are the same if id, environment, condition and seed are equal; a different run with an id
    that is taken gets its place added to the id."""
    kept: dict[str, Record] = {}
    findings: list[Finding] = []
    for record in sorted(records, key=lambda one: KNOWS_MOST.index(one.source)):
        first = kept.setdefault(record.run, record)
        if first is record:
            continue
        if is_same(first, record):
            what = f"the same run from {record.source} ({len(record.rounds)} points) is left out: "
            what += f"{first.place} has it, from {first.source} ({len(first.rounds)} points)"
            findings += record.findings
        else:
            what = f"another run than {first.place} with the id {record.run}: its place is added"
            own = f"{record.run} ({record.place})"
            kept[own] = replace(record, run=own)
        findings.append(Finding(Kind.duplicate, record.run, record.place, what))
    return list(kept.values()), findings


def is_same(one: Record, other: Record) -> bool:
    """Whether two records of one id are of one run."""
    first, second = place_of(one), place_of(other)
    return (first.group, first.seeds) == (second.group, second.seeds)


def place_runs(records: Sequence[Record]) -> list[Placed]:
    """Runs by environment, condition and seed; the number of those before them at the same."""
    placed = by_settings([Placed(record, place_of(record)) for record in records])
    placed.sort(
        key=lambda run: (
            *run.place.group,
            run.place.stage_seed or 0,
            run.place.seed is None,
            run.place.seed or 0,
        )
    )
    seen: dict[object, int] = {}
    result = []
    for run in placed:
        spot = (*run.place.group, *run.place.seeds)
        result.append(replace(run, repeat=seen.get(spot, 0)))
        seen[spot] = seen.get(spot, 0) + 1
    return result


def selection_size(runs: pd.DataFrame) -> str:
    """How many runs, conditions and seeds a selection has, and which seeds."""
    seeds = sorted(int(seed) for seed in runs["seed"].dropna().unique())
    seedless = int(runs["seed"].isna().sum())
    number = len(runs.groupby(["env_id", "condition"]))
    named = f"{counted(len(seeds), 'seed')} ({ranges_text(seeds)})" if seeds else "no seed"
    stages = sorted(int(seed) for seed in runs["stage_seed"].dropna().unique())
    if stages:
        named = f"{counted(len(stages), 'stage seed')} ({ranges_text(stages)}), {named}"
    return f"{counted(len(runs), 'run')}, {counted(number, 'condition')}, {named}" + (
        f", {seedless} without a seed" if seedless and seeds else ""
    )


def no_match_message(
    records: Sequence[Record], filters: Filters, findings: Sequence[Finding] = ()
) -> str:
    """Why no run is selected, and which values could be selected."""
    if not records and findings:
        more = f" (and {counted(len(findings) - 1, 'finding')} more)" if len(findings) > 1 else ""
        return f"no run can be read: {findings[0].line}{more}"
    if not records:
        return "no runs in these sources: `rlhf-lab runs FOLDER` lists what a folder holds"
    places = [place_of(record) for record in records]
    exists: dict[str, Callable[[], list[str]]] = {
        "projects": lambda: [record.facts.project for record in records],
        "env_id": lambda: [place.env for place in places],
        "exp_name": lambda: [place.experiment for place in places],
        "seed": lambda: [str(place.seed) for place in places],
        "tags": lambda: [tag for record in records for tag in record.facts.tags],
        "metrics": lambda: plain_metrics(records),
    }
    there = [f"  {name}: {listing(sorted(set(values())))}" for name, values in exists.items()]
    wanted = ", ".join(f"{key}={value}" for key, values in filters.items() for value in values)
    return "\n".join([f"no run of {len(records)} has {wanted}. There are:", *there])


def plain_metrics(records: Sequence[Record]) -> list[str]:
    """Names of what was recorded, those by lag or by turn left out."""
    names = {name for record in records for held in metric_names(record) for name in held}
    return [name for name in names if not name.startswith(MAPPINGS)]


def listing(names: Sequence[str], most: int = 40) -> str:
    """Names with commas, up to a number."""
    shown = [name for name in names if name]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return (", ".join(shown[:most]) or "none") + more
