"""What a search found and what it cost: search.json, search.md, and a few lines on the console."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.search.halving import best
from rlhf_lab.sweeps.search.jobs import TEST, TRIAL, Spent, total
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.space import Dimension, written
from rlhf_lab.sweeps.search.study import Trial
from rlhf_lab.sweeps.search.testing import Arm, Paired, paired

NAME = "search"
STATES = ("complete", "pruned", "failed", "running")


@dataclass(frozen=True)
class Found:
    """Everything that a report tells. arms: the default and the chosen setting on the test seeds,
    None before they were run."""

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
        """The trials that came to the last rung, best first."""
        last = self.options.rungs - 1
        values = {t.number: t.values[last] for t in self.trials if t.state == "complete"}
        return [self.trials[n] for n in best(values, len(values), self.options.direction)]

    @property
    def chosen(self) -> Trial | None:
        """The best trial of the last rung."""
        return self.ranked[0] if self.ranked else None

    def spent(self, part: str) -> Spent:
        """What the tuning runs (TRIAL) or the test runs (TEST) took."""
        return total(sorted(self.folder.glob(f"{part}-*/seed-*")))


def write(found: Found, console: Console) -> None:
    """Write both files anew, each in one step, and say the most important."""
    for suffix, text in ((".json", as_json(found)), (".md", "\n".join(as_markdown(found)) + "\n")):
        path = found.folder / f"{NAME}{suffix}"
        draft = path.with_name(f".{path.name}")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    for line in [*of_choice(found), *of_importance(found), *of_budget(found)]:
        console.print(line)
    for line in of_means(found):
        console.print(line)
    console.print(f"report: {found.folder / NAME}.md and .json")


def as_json(found: Found) -> str:
    """The report as data."""
    chosen = found.chosen
    facts: dict[str, Any] = {
        "chosen": None if chosen is None else dict(chosen.setting),
        "trial": None if chosen is None else chosen.number,
        "validation": None if chosen is None else chosen.values[found.options.rungs - 1],
        "importances": dict(found.importances),
        "trials": [asdict(trial) for trial in found.trials],
        "spent": {part: asdict(found.spent(part)) for part in (TRIAL, TEST)},
        "fixed": list(found.fixed),
        "space": {part.key: part.told for part in found.space},
        "options": asdict(found.options),
        "code": found.code,
    }
    if found.arms:
        facts["test"] = {
            one.metric: {
                "default": dict(one.default),
                "chosen": dict(one.chosen),
                **dict(zip(("difference", "low", "high"), map(finite, one.interval), strict=True)),
            }
            for one in paired(*found.arms, found.options.metric)
        }
        facts["problems"] = {arm.name: dict(arm.problems) for arm in found.arms}
    return json.dumps(facts, indent=1, allow_nan=False) + "\n"


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def as_markdown(found: Found) -> Iterator[str]:
    """The report as a page."""
    options = found.options
    yield f"# Search {found.folder.name}"
    yield from ("", *of_choice(found), "", "## Test", "", *of_test(found))
    yield from ("", "## Importance", "", *of_importance(found))
    yield from ("", "## Budget", "", *of_budget(found))
    yield from ("", "## What was searched", "", "| hyperparameter | space |", "|---|---|")
    yield from (f"| `{part.key}` | {part.told} |" for part in found.space)
    yield ""
    yield f"All runs: `{' '.join(found.fixed) or 'the defaults'}`. Code {found.code}."
    yield (
        f"Tuning seeds {listed(options.tuning_seeds)}, test seeds {listed(options.test_seeds)}. "
        f"Metric {options.metric}, on {options.measured_on.value}, {options.direction.value}d; "
        f"sampler {options.sampler.value}, seed {options.sampler_seed}; {options.rungs} rungs, "
        f"1/{options.reduction} go on, {options.bracket_size} settings a bracket."
    )
    yield from ("", "## Trials", "", *of_trials(found))


def of_choice(found: Found) -> Iterator[str]:
    """The chosen setting and what it was worth."""
    counts = Counter(trial.state for trial in found.trials)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    chosen = found.chosen
    if chosen is None:
        yield f"No trial came to the last rung ({states})."
        return
    value = chosen.values[found.options.rungs - 1]
    yield (
        f"Chosen: `{' '.join(written(chosen.setting))}` (trial {chosen.number}), "
        f"{found.options.metric} {value:.4f} on {len(found.options.tuning_seeds)} tuning seeds."
    )
    yield f"{len(found.trials)} trials: {states}."


def of_importance(found: Found) -> Iterator[str]:
    """Shares of the hyperparameters, most important first."""
    if not found.importances:
        yield "Importance of the hyperparameters: too few trials, or too equal ones, to tell."
        return
    shares = ", ".join(f"`{key}` {share:.0%}" for key, share in found.importances.items())
    number = sum(0 in trial.values for trial in found.trials)
    yield (
        f"Importance for a setting to be among the better ones (PED-ANOVA over {number} trials at "
        f"the first rung): {shares}."
    )


def of_budget(found: Found) -> Iterator[str]:
    """What tuning took, and what the test."""
    for title, part in (("Tuning", TRIAL), ("Test", TEST)):
        took = found.spent(part)
        yield (
            f"{title}: {took.runs} runs, {took.rounds} rounds, {took.device_seconds / 3600:.3g} "
            f"device-hours, and {took.reading_seconds / 3600:.3g} hours of validation and "
            "evaluation."
        )


def of_test(found: Found) -> Iterator[str]:
    """Chosen against default, metric by metric."""
    if found.arms is None:
        yield "Not run."
        return
    rows = paired(*found.arms, found.options.metric)
    if rows:
        yield "| metric | seed | default | chosen | chosen - default |"
        yield "|---|---|---|---|---|"
    for row in rows:
        for seed in row.default:
            yield cells(row.metric, str(seed), row.default[seed], row.chosen[seed])
        yield f"| {' | '.join(mean_texts(row))} |"
    yield from ("", *of_problems(found.arms))


def of_means(found: Found) -> Iterator[str]:
    """The test in few lines."""
    if found.arms is None:
        yield "No test."
        return
    for row in paired(*found.arms, found.options.metric):
        (_, default, chosen, difference) = mean_texts(row)
        yield f"  {row.metric}: default {default}, chosen {chosen}, difference {difference}"
    yield from of_problems(found.arms)


def of_problems(arms: Sequence[Arm]) -> Iterator[str]:
    """The test runs that are missing, and why."""
    for arm in arms:
        for seed, problem in arm.problems.items():
            yield f"{arm.name}, seed {seed}, failed: {problem}"


def cells(metric: str, seed: str, default: float, chosen: float) -> str:
    return f"| {metric} | {seed} | {default:.4f} | {chosen:.4f} | {chosen - default:+.4f} |"


def mean_texts(row: Paired) -> tuple[str, str, str, str]:
    """The means, and the interval of the difference where there is one."""
    count = len(row.default)
    means = [math.fsum(values.values()) / count for values in (row.default, row.chosen)]
    mean, low, high = row.interval
    bounds = f" [{low:+.4f}, {high:+.4f}]" if count > 1 else ""
    title = f"{row.metric} | mean{' [95%]' if bounds else ''}"
    return title, f"{means[0]:.4f}", f"{means[1]:.4f}", f"{mean:+.4f}{bounds}"


def of_trials(found: Found) -> Iterator[str]:
    """All trials, with what they were worth at each rung."""
    keys = [part.key for part in found.space]
    rungs = [f"rung {rung + 1}" for rung in range(found.options.rungs)]
    heads = ["trial", "state", *(f"`{key}`" for key in keys), *rungs, "problem"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for trial in found.trials:
        setting = [shown(trial.setting[key]) for key in keys]
        values = [
            f"{trial.values[rung]:.4f}" if rung in trial.values else ""
            for rung in range(found.options.rungs)
        ]
        row = [str(trial.number), trial.state, *setting, *values, one_line(trial.problem)]
        yield f"| {' | '.join(row)} |"


def shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def one_line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values)) or "none"
