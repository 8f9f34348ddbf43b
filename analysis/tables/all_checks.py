"""Everything that is wrong with a selection of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from analysis.sources.findings import Finding, Kind
from analysis.tables.checks import cut_short, no_seed, not_finite, percents, tuning
from analysis.tables.frames import Placed, not_numbers
from analysis.tables.group_checks import (
    missing,
    other_axes,
    other_code,
    other_config,
    other_evaluation,
    other_kernels,
    other_machine,
    ragged,
    repeated,
)

Alone = Callable[[Placed], Iterable[str]]
Beside = Callable[[Sequence[Placed]], Iterable[tuple[Placed, str]]]
ALONE: tuple[tuple[Kind, Alone], ...] = (
    (Kind.no_seed, no_seed),
    (Kind.tuning, tuning),
    (Kind.cut_short, cut_short),
    (Kind.not_finite, not_finite),
    (Kind.mixed_units, percents),
)
BESIDE: tuple[tuple[Kind, Beside], ...] = (
    (Kind.ragged, ragged),
    (Kind.duplicate, repeated),
    (Kind.other_code, other_code),
    (Kind.other_config, other_config),
    (Kind.other_machine, other_machine),
    (Kind.other_kernels, other_kernels),
    (Kind.other_evaluation, other_evaluation),
    (Kind.mixed_units, other_axes),
)


def findings_of(runs: Sequence[Placed], metrics: Sequence[str]) -> list[Finding]:
    """What is wrong with runs, alone and beside each other. metrics: those that were asked for."""
    found = [finding for run in runs for finding in run.record.findings]
    found += [told(kind, run, what) for kind, check in ALONE for run in runs for what in check(run)]
    found += not_numbers(runs)
    found += [told(Kind.missing_metric, run, what) for run, what in missing(runs, metrics)]
    found += [told(kind, run, what) for kind, check in BESIDE for run, what in check(runs)]
    return found


def told(kind: Kind, run: Placed, what: str) -> Finding:
    return Finding(kind, run.record.run, run.record.place, what)
