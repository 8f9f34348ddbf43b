"""The results of a search: search.json, search.md, and a few lines on the console."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.disk import atomic_write
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.search.final_test import Arm, PairedMetric, pair_metrics
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.runs import TEST, TRIAL, Usage, total_usage
from rlhf_lab.sweeps.search.space import Dimension, to_overrides
from rlhf_lab.sweeps.search.study import Trial
from rlhf_lab.sweeps.search.tuning import rank_trials

STATES = ("complete", "pruned", "failed", "running")
NAME = "search"


@dataclass(frozen=True)
class SearchResult:
    """The contents of the report. arms: the default and the chosen setting on the test seeds, None
    before the test."""

    folder: Path
    fixed: Sequence[str]
    space: Sequence[Dimension]
    options: SearchOptions
    trials: Sequence[Trial]
    importances: Mapping[str, float]
    code: str
    arms: tuple[Arm, Arm] | None = None

    @property
    def ranked(self) -> list[Trial]:
        """The trials that reached the last rung, best first."""
        last = self.options.rungs - 1
        values = {t.number: t.values[last] for t in self.trials if t.state == "complete"}
        return [self.trials[n] for n in rank_trials(values, len(values), self.options.direction)]

    @property
    def chosen(self) -> Trial | None:
        return self.ranked[0] if self.ranked else None

    def usage(self, part: str) -> Usage:
        """The cost of the tuning runs (TRIAL) or of the test runs (TEST)."""
        return total_usage(sorted(self.folder.glob(f"{part}-*/seed-*")))


def summary_lines(result: SearchResult) -> Iterator[str]:
    """The results in a few lines."""
    yield from choice_lines(result)
    yield from importance_lines(result)
    yield from budget_lines(result)
    yield from mean_lines(result)


def as_markdown(result: SearchResult) -> Iterator[str]:
    options = result.options
    yield f"# Search {result.folder.name}"
    yield from ("", *choice_lines(result), "", "## Test", "", *test_lines(result))
    yield from ("", "## Importance", "", *importance_lines(result))
    yield from ("", "## Budget", "", *budget_lines(result))
    yield from ("", "## What was searched", "", "| hyperparameter | space |", "|---|---|")
    yield from (f"| `{part.key}` | {part.label} |" for part in result.space)
    yield ""
    yield f"All runs: `{' '.join(result.fixed) or 'the defaults'}`. Code {result.code}."
    yield (
        f"Tuning seeds {joined(options.tuning_seeds)}, test seeds {joined(options.test_seeds)}. "
        f"Metric {options.metric}, on {options.measured_on.value}, {options.direction.value}d; "
        f"sampler {options.sampler.value}, seed {options.sampler_seed}; {options.rungs} rungs, "
        f"1/{options.reduction} go on, {options.bracket_size} settings a bracket."
    )
    yield from ("", "## Trials", "", *trial_lines(result))


def choice_lines(result: SearchResult) -> Iterator[str]:
    counts = Counter(trial.state for trial in result.trials)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    chosen = result.chosen
    if chosen is None:
        yield f"No trial came to the last rung ({states})."
        return
    value = chosen.values[result.options.rungs - 1]
    yield (
        f"Chosen: `{' '.join(to_overrides(chosen.setting))}` (trial {chosen.number}), "
        f"{result.options.metric} {value:.4f} on {len(result.options.tuning_seeds)} tuning seeds."
    )
    yield f"{len(result.trials)} trials: {states}."


def importance_lines(result: SearchResult) -> Iterator[str]:
    """The importance of each hyperparameter, largest first."""
    if not result.importances:
        yield "Importance of the hyperparameters: too few trials, or all with the same value."
        return
    shares = ", ".join(f"`{key}` {share:.0%}" for key, share in result.importances.items())
    number = sum(0 in trial.values for trial in result.trials)
    yield (
        f"Importance for a setting to be among the better ones (PED-ANOVA over {number} trials at "
        f"the first rung): {shares}."
    )


def budget_lines(result: SearchResult) -> Iterator[str]:
    for title, part in (("Tuning", TRIAL), ("Test", TEST)):
        usage = result.usage(part)
        yield (
            f"{title}: {usage.runs} runs, {usage.rounds} rounds, {usage.device_seconds / 3600:.3g} "
            f"device-hours, and {usage.reading_seconds / 3600:.3g} hours of validation and "
            "evaluation."
        )


def test_lines(result: SearchResult) -> Iterator[str]:
    """The chosen setting against the default, metric by metric."""
    if result.arms is None:
        yield "Not run."
        return
    rows = pair_metrics(*result.arms, result.options.metric)
    if rows:
        yield "| metric | seed | default | chosen | chosen - default |"
        yield "|---|---|---|---|---|"
    for row in rows:
        for seed in row.default:
            default, chosen = row.default[seed], row.chosen[seed]
            numbers = f"{default:.4f} | {chosen:.4f} | {chosen - default:+.4f}"
            yield f"| {row.metric} | {seed} | {numbers} |"
        yield f"| {' | '.join(mean_texts(row))} |"
    yield from ("", *problem_lines(result.arms))


def mean_lines(result: SearchResult) -> Iterator[str]:
    if result.arms is None:
        yield "No test."
        return
    for row in pair_metrics(*result.arms, result.options.metric):
        (_, default, chosen, difference) = mean_texts(row)
        yield f"  {row.metric}: default {default}, chosen {chosen}, difference {difference}"
    yield from problem_lines(result.arms)


def problem_lines(arms: Sequence[Arm]) -> Iterator[str]:
    for arm in arms:
        for seed, problem in arm.problems.items():
            yield f"{arm.name}, seed {seed}, failed: {problem}"


def mean_texts(row: PairedMetric) -> tuple[str, str, str, str]:
    """The means, and the interval of the difference where there is one."""
    count = len(row.default)
    means = [math.fsum(values.values()) / count for values in (row.default, row.chosen)]
    mean, low, high = row.interval
    bounds = f" [{low:+.4f}, {high:+.4f}]" if count > 1 else ""
    title = f"{row.metric} | mean{' [95%]' if bounds else ''}"
    return title, f"{means[0]:.4f}", f"{means[1]:.4f}", f"{mean:+.4f}{bounds}"


def trial_lines(result: SearchResult) -> Iterator[str]:
    """All trials, with their values at each rung."""
    keys = [part.key for part in result.space]
    rungs = [f"rung {rung + 1}" for rung in range(result.options.rungs)]
    heads = ["trial", "state", *(f"`{key}`" for key in keys), *rungs, "problem"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for trial in result.trials:
        setting = [value_text(trial.setting[key]) for key in keys]
        values = [
            f"{trial.values[rung]:.4f}" if rung in trial.values else ""
            for rung in range(result.options.rungs)
        ]
        problem = " ".join(trial.problem.replace("|", "/").split())
        row = [str(trial.number), trial.state, *setting, *values, problem]
        yield f"| {' | '.join(row)} |"


def value_text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def joined(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) or "none"


def write(result: SearchResult, console: Console) -> None:
    """Replace both files, each atomically, and print a summary."""
    for suffix, text in (
        (".json", as_json(result)),
        (".md", "\n".join(as_markdown(result)) + "\n"),
    ):
        path = result.folder / f"{NAME}{suffix}"
        atomic_write(path, text)
    for line in summary_lines(result):
        console.print(line)
    console.print(f"report: {result.folder / NAME}.md and .json")


def as_json(result: SearchResult) -> str:
    chosen = result.chosen
    facts: dict[str, Any] = {
        "chosen": None if chosen is None else dict(chosen.setting),
        "trial": None if chosen is None else chosen.number,
        "validation": None if chosen is None else chosen.values[result.options.rungs - 1],
        "importances": dict(result.importances),
        "trials": [asdict(trial) for trial in result.trials],
        "spent": {part: asdict(result.usage(part)) for part in (TRIAL, TEST)},
        "fixed": list(result.fixed),
        "space": {part.key: part.label for part in result.space},
        "options": asdict(result.options),
        "code": result.code,
    }
    if result.arms:
        facts["test"] = {
            one.metric: {
                "default": dict(one.default),
                "chosen": dict(one.chosen),
                **dict(zip(("difference", "low", "high"), map(finite, one.interval), strict=True)),
            }
            for one in pair_metrics(*result.arms, result.options.metric)
        }
        facts["problems"] = {arm.name: dict(arm.problems) for arm in result.arms}
    return json.dumps(facts, indent=1, allow_nan=False) + "\n"


def finite(value: float) -> float | None:
    """The number, or None for infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
