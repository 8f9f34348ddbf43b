"""Compare the runs of a selection with each other, and report runs that must not be averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlhf_lab_analysis.sources.axes import VersionAxes
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.sources.record import MAPPINGS, Record, Row, Source, flat_config, look_up
from rlhf_lab_analysis.tables.frames import Placed, metric_names

# Groups of config keys that do not change the training: output paths, trackers, checkpoints, data.
NOT_COMPARED = ("output.", "tracker.", "checkpoint.", "data.")
EXPORTED = ("env_id.value", "exp_name.value", "condition", "condition.value")
NOT_SETTINGS = ("seed", "stage_seed", "code", "content", "part", "env_id", "exp_name", *EXPORTED)
JUDGED_WITH = ("eval/options", "eval/split", "eval/prompts", "eval/samples")
SHOWN = 3
RunProblems = Iterator[tuple[Placed, str]]


def by_condition(runs: Sequence[Placed]) -> dict[tuple[str, str], list[Placed]]:
    """Runs of one environment and condition, which differ in their seed alone."""
    found: dict[tuple[str, str], list[Placed]] = {}
    for run in runs:
        found.setdefault(run.place.group, []).append(run)
    return found


def check_missing_metrics(runs: Sequence[Placed], metrics: Sequence[str]) -> RunProblems:
    """Yield runs without a requested metric, or without one that their condition's others have."""
    for group in by_condition(runs).values():
        names = [metric_names(run.record) for run in group]
        for run, (points, judged) in zip(group, names, strict=True):
            if unrecorded := [name for name in metrics if name not in points | judged]:
                yield run, f"{listed(unrecorded)} was never recorded"
            if run.record.facts.planned_rounds is not None and not run.record.evals:
                yield run, "no version of it was evaluated"
            if metrics:
                continue
            theirs = set().union(*(one | other for one, other in names)) - points - judged
            theirs = {name for name in theirs if not name.startswith(MAPPINGS)}
            if theirs and run.record.rounds and (judged or not any(j for _, j in names)):
                yield run, f"{listed(sorted(theirs))}: only other runs of its condition have that"


def listed(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def check_lengths(runs: Sequence[Placed]) -> RunProblems:
    """Yield runs with fewer points or versions than others of their condition."""
    counts: dict[str, Callable[[Record], int]] = {
        "points": lambda record: len(record.rounds),
        "versions": lambda record: len(record.evals),
    }
    for group in by_condition(runs).values():
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


def check_duplicates(runs: Sequence[Placed]) -> RunProblems:
    """Yield runs that have the condition and seed, or all settings, of an earlier run."""
    seen: dict[Any, Placed] = {}
    for run in runs:
        content = run.record.facts.content
        keys: list[Any] = [("content", content)] if content else []
        if run.place.seed is not None:
            keys.append((*run.place.group, *run.place.seeds))
        others = [seen[key] for key in keys if key in seen]
        for key in keys:
            seen.setdefault(key, run)
        if others:
            what = f"seed {run.place.seed} of {run.place.condition} is there twice, first in "
            what += f"{others[0].record.place}: both are in the table (repeat={run.repeat})"
            yield run, what


def environment(run: Placed) -> tuple[str, ...]:
    return (run.place.env,)


class Fact(NamedTuple):
    """What all runs of a group should have in common. of: "" is not compared. so: what follows from
    another one."""

    kind: Kind
    name: str
    of: Callable[[Placed], str]
    so: str = ""
    group_of: Callable[[Placed], tuple[str, ...]] = environment


def differing_runs(runs: Sequence[Placed], fact: Fact) -> RunProblems:
    """Yield runs in which a fact is another one than in most of their group."""
    groups: dict[tuple[str, ...], list[tuple[Placed, str]]] = {}
    for run in runs:
        if text := fact.of(run):
            groups.setdefault(fact.group_of(run), []).append((run, text))
    for group in groups.values():
        ((usual, count),) = Counter(text for _, text in group).most_common(1)
        for run, text in group:
            if text != usual:
                what = f"{fact.name} {text}, but {usual} in {count} of {len(group)} runs"
                yield run, what + fact.so


def check_config(runs: Sequence[Placed]) -> RunProblems:
    """Yield runs whose config differs from most of their condition in more than the seed. Each
    source stores configs in its own form, so each source is compared by itself."""
    for group in by_condition(runs).values():
        for source in Source:
            same = [run for run in group if run.record.source is source]
            yield from differing_configs(same)


def differing_configs(group: Sequence[Placed]) -> RunProblems:
    configs = [compared_settings(run.record.config) for run in group]
    differs: dict[int, list[str]] = {}
    for key in sorted({key for config in configs for key in config}):
        usual, count = Counter(config.get(key, "unset") for config in configs).most_common(1)[0]
        for place, config in enumerate(configs):
            if (value := config.get(key, "unset")) != usual:
                what = f"{key}={value} (but {usual} in {count} of {len(configs)})"
                differs.setdefault(place, []).append(what)
    for place, keys in differs.items():
        yield group[place], f"within its condition: {listed(keys)}"


def compared_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """The config values that must be equal in all runs of a condition, as texts."""
    return {
        key: str(value)
        for key, value in flat_config(config).items()
        if not key.startswith(NOT_COMPARED)
        and key not in NOT_SETTINGS
        and not key.endswith(".part")
    }


def evaluation_settings(run: Placed) -> str:
    """The settings with which a run's unlabelled versions were judged; "" if none was judged."""
    record = run.record
    rows: list[Row] = [row for row in record.evals if not row.get("label")]
    settings = {", ".join(f"{k}={row[k]}" for k in JUDGED_WITH if k in row) for row in rows}
    named = {key: look_up(record.config, key) for key in ("judge.name", "eval.temperature")}
    with_ = [f"{key}={value}" for key, value in named.items() if value is not None]
    return " and ".join(sorted(settings)) + "".join(f", {text}" for text in with_) if rows else ""
