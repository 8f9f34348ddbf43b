"""Write the results of a search: search.json, search.md, and a few lines on the console."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from rlhf_lab.runs.disk import atomic_write
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.search.final_test import pair_metrics
from rlhf_lab.sweeps.search.markdown import as_markdown, summary_lines
from rlhf_lab.sweeps.search.result import SearchResult
from rlhf_lab.sweeps.search.runs import TEST, TRIAL

NAME = "search"


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
    """The report as JSON."""
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
