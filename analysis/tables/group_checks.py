"""Findings about runs beside each other: what would be averaged in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from analysis.sources.axes import VersionAxes, clock_of
from analysis.sources.record import Record, Row, Source, flat_config
from analysis.tables.frames import Placed, metric_names

# Where a run writes, whom it tells, and what says nothing of how it was made.
NOT_COMPARED = ("output.", "tracker.", "checkpoint.", "data.")
EXPORTED = ("env_id.value", "exp_name.value", "condition", "condition.value")
NOT_SETTINGS = ("seed", "code", "content", "part", "env_id", "exp_name", *EXPORTED)
JUDGED_WITH = ("eval/options", "eval/split", "eval/prompts", "eval/samples")
SHOWN = 3
Told = Iterator[tuple[Placed, str]]


def groups(runs: Sequence[Placed]) -> dict[tuple[str, str], list[Placed]]:
    """Runs of one environment and condition, which differ in their seed alone."""
    found: dict[tuple[str, str], list[Placed]] = {}
    for run in runs:
        found.setdefault(run.place.group, []).append(run)
    return found


def missing(runs: Sequence[Placed], metrics: Sequence[str]) -> Told:
    """Metrics that were asked for, or that fellows of the condition have."""
    for group in groups(runs).values():
        names = [metric_names(run.record) for run in group]
        for run, (points, judged) in zip(group, names, strict=True):
            if asked := [name for name in metrics if name not in points | judged]:
                yield run, f"{listed(asked)} was never recorded"
            if run.record.facts.planned_rounds is not None and not run.record.evals:
                yield run, "no version of it was evaluated"
            if metrics:
                continue
            theirs = set().union(*(one | other for one, other in names)) - points - judged
            theirs = {name for name in theirs if not name.startswith("by_lag/")}
            if theirs and run.record.rounds and (judged or not any(j for _, j in names)):
                yield run, f"{listed(sorted(theirs))}: only other runs of its condition have that"


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def ragged(runs: Sequence[Placed]) -> Told:
    """Runs with fewer points or versions than others of their condition."""
    counts: dict[str, Callable[[Record], int]] = {
        "points": lambda record: len(record.rounds),
        "versions": lambda record: len(record.evals),
    }
    for group in groups(runs).values():
        for name, count in counts.items():
            most = max(count(run.record) for run in group)
            for run in group:
                if (here := count(run.record)) < most:
                    yield run, f"{here} {name}, but {most} in the longest run of its condition"
    for run in runs:
        axes = VersionAxes(run.record, None)
        lost = [row["version"] for row in run.record.evals if not axes.at(int(row["version"]))[1]]
        if lost and run.record.rounds and run.record.facts.planned_rounds is not None:
            yield run, f"versions {listed([str(v) for v in lost])} have no recorded round: no cost"


def repeated(runs: Sequence[Placed]) -> Told:
    """Runs of the same condition and seed as another one, or of the very same settings."""
    seen: dict[Any, Placed] = {}
    for run in runs:
        content = run.record.facts.content
        keys: list[Any] = [("content", content)] if content else []
        if run.place.seed is not None:
            keys.append((*run.place.group, run.place.seed))
        others = [seen[key] for key in keys if key in seen]
        for key in keys:
            seen.setdefault(key, run)
        if others:
            what = f"seed {run.place.seed} of {run.place.condition} is there twice, first in "
            what += f"{others[0].record.place}: both are in the table (repeat={run.repeat})"
            yield run, what


def other_code(runs: Sequence[Placed]) -> Told:
    """Runs whose code is not that of most runs of their environment, or not known where others'
    is. Trackers keep no code, so runs are compared with those of their source."""
    for source in Source:
        same = [run for run in runs if run.record.source is source]
        if any(run.record.facts.code for run in same):
            yield from odd_ones(same, lambda run: run.record.facts.code or "unknown", "code")


def other_machine(runs: Sequence[Placed]) -> Told:
    """Runs whose seconds are of another machine than those of most runs of their environment."""
    yield from odd_ones(runs, lambda run: run.record.facts.machine, "machine")


def other_kernels(runs: Sequence[Placed]) -> Told:
    """Runs whose bits are of other CPU kernels than those of most runs of their environment: at
    equal seeds they have parted by more than their conditions."""
    for run, what in odd_ones(runs, lambda run: run.record.facts.kernels, "CPU kernels"):
        yield run, f"{what}: equal seeds are no pairs there"


def odd_ones(runs: Sequence[Placed], of: Callable[[Placed], str], name: str) -> Told:
    """Runs where `of` says something else than in most others of their environment."""
    by_env: dict[str, list[Placed]] = {}
    for run in runs:
        if of(run):
            by_env.setdefault(run.place.env, []).append(run)
    for group in by_env.values():
        (usual, count), *_ = Counter(of(run) for run in group).most_common()
        for run in group:
            if of(run) != usual:
                yield run, f"{name} {of(run)}, but {usual} in {count} of {len(group)} runs"


def other_config(runs: Sequence[Placed]) -> Told:
    """Runs whose config differs from most of their condition in more than the seed. Sources keep
    configs in forms of their own, so runs are compared with those of the same one."""
    for group in groups(runs).values():
        for source in Source:
            same = [run for run in group if run.record.source is source]
            yield from odd_configs(same)


def odd_configs(group: Sequence[Placed]) -> Told:
    configs = [compared(run.record.config) for run in group]
    differs: dict[int, list[str]] = {}
    for key in sorted({key for config in configs for key in config}):
        usual, count = Counter(config.get(key, "unset") for config in configs).most_common(1)[0]
        for place, config in enumerate(configs):
            if (value := config.get(key, "unset")) != usual:
                what = f"{key}={value} (but {usual} in {count} of {len(configs)})"
                differs.setdefault(place, []).append(what)
    for place, keys in differs.items():
        yield group[place], f"within its condition: {listed(keys)}"


def compared(config: Mapping[str, Any]) -> dict[str, str]:
    """What must agree between runs of one condition, as texts."""
    return {
        key: str(value)
        for key, value in flat_config(config).items()
        if not key.startswith(NOT_COMPARED)
        and key not in NOT_SETTINGS
        and not key.endswith(".part")
    }


def judged_with(record: Record) -> str:
    """How the versions of a run were judged, all labels aside; "" if none was."""
    rows: list[Row] = [row for row in record.evals if not row.get("label")]
    told = {", ".join(f"{k}={row[k]}" for k in JUDGED_WITH if k in row) for row in rows}
    config = flat_config(record.config)
    with_ = [f"{key}={config[key]}" for key in ("judge.name", "eval.temperature") if key in config]
    return " and ".join(sorted(told)) + "".join(f", {text}" for text in with_) if rows else ""


def other_evaluation(runs: Sequence[Placed]) -> Told:
    """Runs that were judged in another way than most of their environment."""
    yield from odd_ones(runs, lambda run: judged_with(run.record), "judged with")


def other_axes(runs: Sequence[Placed]) -> Told:
    """Runs whose x-axis or clock is another one than that of most runs of their environment."""
    foreign = [run for run in runs if run.place.numbers["updates_per_round"] is None]
    yield from odd_ones(foreign, lambda run: run.record.facts.step, "x/step counts")
    yield from odd_ones(runs, lambda run: clock_of(run.record), "x/wall_seconds is of")
