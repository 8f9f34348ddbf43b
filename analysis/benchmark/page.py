"""The tables of docs/benchmark.md: claims and their verdicts, stages, and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlhf_lab_analysis.benchmark.claims import COLUMNS, open_lines, row_of, verdicts_text
from rlhf_lab_analysis.benchmark.crossed import HEAD as CROSSED_HEAD
from rlhf_lab_analysis.benchmark.crossed import crossed_rows
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import (
    WANTED_POWER,
    Decision,
    Decisions,
    core_hours,
)
from rlhf_lab_analysis.comparison.registry.definitions import Registry
from rlhf_lab_analysis.comparison.registry.gates import stages_of
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.publication_tables.conditions import Conditions
from rlhf_lab_analysis.publication_tables.entries import PublicationTable
from rlhf_lab_analysis.publication_tables.formats import as_markdown
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.results import results
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.table import Tables

HEAD = (COLUMNS[0], "source", *COLUMNS[1:])


def page(
    tables: Tables,
    collapses: Tables | None,
    weak: Sequence[Tables | None],
    found: Sequence[Decisions],
) -> list[str]:
    """All lines between the page's markers. collapses: the runs that were made to collapse. weak:
    those that the gates stopped, of each."""
    selection, fallen = cells(tables), conditions_of(collapses)
    every = [one for decisions in found for one in decisions.decided]
    lines = [f"{tables.overview}. {distinct_text(selection)} {verdicts_text(every)}", ""]
    lines += [f"{power_sentence(every)} {hours_text(selection, fallen)}", ""]
    if collapses:
        head = "Runs of which all rounds are kept, for claims on collapse"
        lines += [f"{head}: {collapses.overview}.", ""]
    for question in dict.fromkeys(one.claim.question for one in every):
        own = [one for one in every if one.claim.question == question]
        rows = tuple((one.answer.claim, one.answer.source, *row_of(one)) for one in own)
        lines += [f"## {question}", *markdown(HEAD, rows), ""]
    if rows := crossed_rows(found, selection, Criteria()):
        lines += ["## Stage seeds or RL seeds?", "", *markdown(CROSSED_HEAD, rows), ""]
    lines += ["## Not decided", "", *undecided(every, found), ""]
    lines += ["## Not run yet", "", *waiting(found), ""]
    lines += [
        "## Stages",
        "",
        *stage_lines(found, [selection, fallen, *map(conditions_of, weak)]),
        "",
    ]
    lines += ["## Results", "", *result_lines(tables, selection)]
    if collapses:
        lines += result_lines(collapses, fallen)
    if stopped := weak[0]:
        lines += ["## Results of the stages that fail the gates", "", f"{stopped.overview}.", ""]
        lines += result_lines(stopped, cells(stopped))
    left_out = [f"- {line}" for line in (*selection.left_out, *fallen.left_out)]
    return [*lines, "## Not counted", "", *(left_out or ["Nothing."]), ""]


def result_lines(tables: Tables, selection: Selection) -> list[str]:
    """Where each condition ends, a table for each sweep."""
    lines, criteria = [], Criteria()
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        own = selection.only(sweep=sweep).cells
        metrics = (criteria.quality, "proxy/mean", criteria.drift)
        shown = TableOptions([name for name in metrics if any(cell.has(name) for cell in own)])
        for table in results(tables, Conditions(Selection(own, ()), shown.style), shown):
            lines += [f"### {sweep}", "", *as_markdown(table).splitlines(), ""]
    return lines


def markdown(head: Sequence[str], rows: tuple[tuple[str, ...], ...]) -> list[str]:
    return as_markdown(PublicationTable("verdicts", "", tuple(head), rows)).splitlines()


def distinct_text(selection: Selection) -> str:
    """How many different training runs these are: sweeps share conditions, and runs of the same
    settings and seed count once in every comparison."""
    runs = [(cell.training, seeds) for cell in selection.cells for seeds in cell.members]
    twice = len(runs) - len({*runs})
    if not twice:
        return "No two of them have the same settings and seeds."
    return (
        f"{twice} have the settings and the seeds of another one, in a second sweep, and count "
        "once in every comparison."
    )


def power_sentence(every: Sequence[Decision]) -> str:
    """How many verdicts were planned with less power than is wanted, and how many of them are
    open."""
    weak = [one for one in every if one.planned is not None and one.planned < WANTED_POWER]
    still_open = sum(one.answer.verdict is Verdict.cannot_tell for one in weak)
    return (
        f"{len(weak)} were planned with a power below {WANTED_POWER:.2f}, and {still_open} of "
        "these cannot tell."
    )


def hours_text(selection: Selection, fallen: Selection) -> str:
    """What all runs took, those that were made to collapse included."""
    hours = sum(core_hours(cell) for cell in (*selection.cells, *fallen.cells))
    return f"All runs of this page took {hours:.1f} core-hours, without SFT and reward models."


def undecided(every: Sequence[Decision], found: Sequence[Decisions]) -> list[str]:
    """What it would take to decide the rest, and treatments that changed nothing."""
    lines = [f"- {line}" for line in open_lines(every)]
    lines += [f"- {line}" for decisions in found for line in decisions.idle]
    return lines or ["Nothing."]


def waiting(found: Sequence[Decisions]) -> list[str]:
    """Claims without runs, and what is expected of sweeps that take a GPU."""
    lines = [
        f"- {claim.row['text']} ({claim.source}): `{claim.making}`"
        for decisions in found
        for claim in decisions.waiting
    ]
    for decisions in found:
        lines += [
            f"- Expected of `{sweep}`, on GPUs: {text}"
            for sweep, text in decisions.registry.file.get("waiting", {}).items()
        ]
    return lines or ["Nothing."]


def conditions_of(tables: Tables | None) -> Selection:
    """The conditions of tables that may not be there."""
    return cells(tables) if tables else Selection((), ())


def stage_lines(found: Sequence[Decisions], every: Sequence[Selection]) -> Iterator[str]:
    """The gates, the stages of each seed, and later changes of the files of claims."""
    stages = {
        stage.row: stage
        for decisions in found
        for selection in every
        for stage in stages_of(decisions.registry, selection)
    }
    ordered = sorted(stages.values(), key=lambda stage: (stage.task, stage.model, stage.seed))
    # Papers whose claims are tested on the same stages have the same gates.
    gates = (line for decisions in found for line in gate_lines(decisions.registry))
    for line in dict.fromkeys(gates):
        yield from (line, "")
    head = ("task", "model", "stage seed", "SFT loss", "proxy accuracy", "passes", "runs")
    yield from markdown(head, tuple(stage.row for stage in ordered))
    changes = [
        f"- {change['date']}: {change['what']}"
        for decisions in found
        for change in decisions.registry.file.get("changed", [])
    ]
    yield from ("", "Changes of the claims after they were written:", "", *(changes or ["- none"]))


def gate_lines(registry: Registry) -> Iterator[str]:
    for task, bounds in registry.gates.items():
        texts = [
            f"{key} at {name} {value:g}"
            for key, bound in bounds.items()
            for name, value in bound.items()
        ]
        yield f"Gates of {task}, of {registry.file['written']}: {', '.join(texts)}."
