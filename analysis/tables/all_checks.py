"""Run all checks on a selection of runs, and return their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.tables.checks import (
    check_end,
    check_finite,
    check_seed,
    check_shares,
    check_tuning,
    check_zeroed,
)
from rlhf_lab_analysis.tables.frames import Placed, check_numbers
from rlhf_lab_analysis.tables.group_checks import (
    check_axes,
    check_code,
    check_config,
    check_duplicates,
    check_evaluation,
    check_kernels,
    check_lengths,
    check_machine,
    check_missing_metrics,
)
from rlhf_lab_analysis.tables.precision_checks import check_precision

RunCheck = Callable[[Placed], Iterable[str]]
GroupCheck = Callable[[Sequence[Placed]], Iterable[tuple[Placed, str]]]
RUN_CHECKS: tuple[tuple[Kind, RunCheck], ...] = (
    (Kind.no_seed, check_seed),
    (Kind.tuning, check_tuning),
    (Kind.cut_short, check_end),
    (Kind.not_finite, check_finite),
    (Kind.mixed_units, check_shares),
    (Kind.mostly_zeroed, check_zeroed),
)
GROUP_CHECKS: tuple[tuple[Kind, GroupCheck], ...] = (
    (Kind.ragged, check_lengths),
    (Kind.duplicate, check_duplicates),
    (Kind.other_code, check_code),
    (Kind.other_config, check_config),
    (Kind.other_machine, check_machine),
    (Kind.other_kernels, check_kernels),
    (Kind.other_precision, check_precision),
    (Kind.other_evaluation, check_evaluation),
    (Kind.mixed_units, check_axes),
)


def findings_of(runs: Sequence[Placed], metrics: Sequence[str]) -> list[Finding]:
    """The findings on each run by itself and against the others. metrics: the requested ones."""
    found = [finding for run in runs for finding in run.record.findings]
    found += [
        finding_of(kind, run, what)
        for kind, check in RUN_CHECKS
        for run in runs
        for what in check(run)
    ]
    found += check_numbers(runs)
    found += [
        finding_of(Kind.missing_metric, run, what)
        for run, what in check_missing_metrics(runs, metrics)
    ]
    found += [
        finding_of(kind, run, what) for kind, check in GROUP_CHECKS for run, what in check(runs)
    ]
    return found


def finding_of(kind: Kind, run: Placed, what: str) -> Finding:
    return Finding(kind, run.record.run, run.record.place, what)
