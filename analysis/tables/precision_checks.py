"""Report runs for which `auto` stood for another device or type of numbers than for others."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab_analysis.sources.record import look_up
from rlhf_lab_analysis.tables.frames import Placed
from rlhf_lab_analysis.tables.group_checks import RunProblems, differing_runs

PRECISION_KEYS = (
    "engine.device",
    "engine.dtype",
    "engine.tf32",
    "generator.device",
    "generator.dtype",
)


def check_precision(runs: Sequence[Placed]) -> RunProblems:
    """Yield runs that were computed on another kind of device or in another type of numbers than
    most runs of their environment with equal settings of both, and those that changed it midway."""
    what = "computed with"
    found = differing_runs(runs, lambda run: run.record.facts.precision, what, precision_settings)
    for run, text in found:
        yield run, f"{text}: auto stood for another device"


def precision_settings(run: Placed) -> tuple[str, ...]:
    """The environment of a run, and its settings of devices and types of numbers."""
    config = run.record.config
    return (run.place.env, *(str(look_up(config, key)) for key in PRECISION_KEYS))
