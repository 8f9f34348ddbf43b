"""Run all checks on a selection of runs, and return their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from rlhf_lab_analysis.sources.axes import clock_of
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.record import look_up
from rlhf_lab_analysis.tables.checks import (
    check_end,
    check_finite,
    check_seed,
    check_shares,
    check_tied,
    check_tuning,
    check_zeroed,
)
from rlhf_lab_analysis.tables.frames import Placed, check_numbers
from rlhf_lab_analysis.tables.group_checks import (
    Fact,
    check_config,
    check_duplicates,
    check_lengths,
    check_missing_metrics,
    differing_runs,
    evaluation_settings,
)

PRECISION_KEYS = (
    *("engine.device", "engine.dtype", "engine.tf32"),
    *("generator.device", "generator.dtype"),
)
RunCheck = Callable[[Placed], Iterable[str]]
GroupCheck = Callable[[Sequence[Placed]], Iterable[tuple[Placed, str]]]


def code_of(run: Placed) -> str:
    """Trackers keep no code: all runs of such a source are alike in it."""
    return run.record.facts.code or "unknown"


def foreign_step_of(run: Placed) -> str:
    """What the source of a run that is none of ours counts in."""
    return run.record.facts.step if run.place.numbers["updates_per_round"] is None else ""


def source_of(run: Placed) -> tuple[str, ...]:
    return run.place.env, run.record.source


def precision_settings(run: Placed) -> tuple[str, ...]:
    """The environment of a run, and its settings of devices and types of numbers."""
    config = run.record.config
    return (run.place.env, *(str(look_up(config, key)) for key in PRECISION_KEYS))


RUN_CHECKS: tuple[tuple[Kind, RunCheck], ...] = (
    (Kind.no_seed, check_seed),
    (Kind.tuning, check_tuning),
    (Kind.cut_short, check_end),
    (Kind.not_finite, check_finite),
    (Kind.mixed_units, check_shares),
    (Kind.mostly_zeroed, check_zeroed),
    (Kind.all_tied, check_tied),
)
GROUP_CHECKS: tuple[tuple[Kind, GroupCheck], ...] = (
    (Kind.ragged, check_lengths),
    (Kind.duplicate, check_duplicates),
    (Kind.other_config, check_config),
)
FACTS = (
    Fact(Kind.other_code, "code", code_of, group_of=source_of),
    Fact(Kind.other_machine, "machine", attrgetter("record.facts.machine")),
    Fact(
        Kind.other_kernels,
        "CPU kernels",
        attrgetter("record.facts.kernels"),
        ": equal seeds are no pairs there",
    ),
    Fact(
        Kind.other_precision,
        "computed with",
        attrgetter("record.facts.precision"),
        ": auto stood for another device",
        precision_settings,
    ),
    Fact(Kind.other_evaluation, "judged with", evaluation_settings),
    Fact(Kind.mixed_units, "x/step counts", foreign_step_of),
    Fact(Kind.mixed_units, "x/wall_seconds is of", lambda run: clock_of(run.record)),
)


def findings_of(runs: Sequence[Placed], metrics: Sequence[str]) -> list[Finding]:
    """The findings on each run by itself and against the others. metrics: the requested ones."""
    alone = [(kind, run, what) for kind, check in RUN_CHECKS for run in runs for what in check(run)]
    lacking = [(Kind.missing_metric, *found) for found in check_missing_metrics(runs, metrics)]
    together = [(kind, *found) for kind, check in GROUP_CHECKS for found in check(runs)]
    together += [(fact.kind, *found) for fact in FACTS for found in differing_runs(runs, fact)]
    return [
        *(finding for run in runs for finding in run.record.findings),
        *(finding_of(*one) for one in alone),
        *check_numbers(runs),
        *(finding_of(*one) for one in (*lacking, *together)),
    ]


def finding_of(kind: Kind, run: Placed, what: str) -> Finding:
    return Finding(kind, run.record.run, run.record.place, what)
