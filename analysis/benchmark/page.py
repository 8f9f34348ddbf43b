"""The pages of the site that are made of the tracked benchmark: verdicts, results, stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab_analysis.benchmark.claims import COLUMNS, open_lines, row_of, verdicts_text
from rlhf_lab_analysis.benchmark.crossed import HEAD as CROSSED_HEAD
from rlhf_lab_analysis.benchmark.crossed import crossed_rows
from rlhf_lab_analysis.benchmark.kept import (
    COLLAPSES,
    TABLES,
    load_benchmark,
    load_beside,
    weak_of,
)
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.decisions import (
    WANTED_POWER,
    Decision,
    Decisions,
    core_hours,
    decide_all,
)
from rlhf_lab_analysis.comparison.registry.definitions import Registry, read_registries
from rlhf_lab_analysis.comparison.registry.gates import stages_of
from rlhf_lab_analysis.comparison.selection import Selection, cells
from rlhf_lab_analysis.publication_tables.conditions import Conditions
from rlhf_lab_analysis.publication_tables.formats import PublicationTable, as_markdown
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.publication_tables.results import results
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.tables.table import Tables

HEAD = (*COLUMNS, "source")
NONE = Selection((), ())


@dataclass(frozen=True)
class Judged:
    """The kept runs, and what they show of each file of claims with a plan.

    collapses, fallen: the runs that were made to collapse, and their conditions. weak: the runs
    that the gates stop, of either.
    """

    tables: Tables
    collapses: Tables | None
    weak: tuple[Tables, ...]
    selection: Selection
    fallen: Selection
    found: tuple[Decisions, ...]

    @property
    def decided(self) -> list[Decision]:
        return [one for decisions in self.found for one in decisions.decided]


def judge(path: Path = TABLES) -> Judged:
    """Decide all claims on the tables that are kept at a path."""
    beside = path.with_name(COLLAPSES.name)
    tables, collapses = load_benchmark(path), load_beside(beside)
    weak = [one for one in map(load_beside, map(weak_of, (path, beside))) if one]
    selection, fallen = cells(tables), cells(collapses) if collapses else NONE
    together = Selection(selection.cells + fallen.cells, selection.left_out + fallen.left_out)
    registries = [one for one in read_registries() if not one.is_general]
    found = tuple(decide_all(one, together, Criteria()) for one in registries)
    return Judged(tables, collapses, tuple(weak), selection, fallen, found)


def pages(judged: Judged) -> dict[str, str]:
    """File name and Markdown of each page."""
    made = {"verdicts": verdicts, "results": all_results, "stages": stage_lines}
    return {f"{name}.md": "\n".join([*lines(judged), ""]) for name, lines in made.items()}


def verdicts(judged: Judged) -> Iterator[str]:
    """Every claim in every setting, and what is open. The site filters the tables inside the
    `searchable` part (docs/assets/site.js)."""
    decided = judged.decided
    # The table takes the room of the page's contents.
    yield from ("---", "hide: [toc]", "---", "", "# Every verdict of the benchmark", "")
    yield from (about(judged), "")
    yield from ('<div class="searchable" markdown>', "")
    for question in dict.fromkeys(one.claim.question for one in decided):
        own = [one for one in decided if one.claim.question == question]
        rows = tuple((one.answer.claim, *row_of(one), one.answer.source) for one in own)
        yield from (f"## {question}", "", *markdown(HEAD, rows), "")
    yield from ("</div>", "")
    if rows := crossed_rows(judged.found, judged.selection, Criteria()):
        yield from ("## Stage seeds or RL seeds?", "", *markdown(CROSSED_HEAD, rows), "")
    yield from ("## Not decided", "", *undecided(judged), "")
    yield from ("## Not run yet", "", *waiting(judged.found))


def about(judged: Judged) -> str:
    """Which runs there are, what they took, and how many verdicts of each kind."""
    texts = [f"{judged.tables.overview}. {distinct_text(judged.selection)}"]
    if judged.collapses:
        more = "Runs of which all rounds are kept, for claims on collapse"
        texts.append(f"{more}: {judged.collapses.overview}.")
    texts += [
        f"{verdicts_text(judged.decided)} {power_sentence(judged.decided)}",
        hours_text(judged.selection, judged.fallen),
    ]
    return "\n\n".join(texts)


def all_results(judged: Judged) -> Iterator[str]:
    """Where each condition ends, those of stages that fail the gates apart."""
    yield from ("# Results of each sweep", "", *result_lines(judged.tables, judged.selection))
    if judged.collapses:
        yield from result_lines(judged.collapses, judged.fallen)
    if judged.weak:
        yield from ("## Of stages that fail the gates", "")
    for weak in judged.weak:
        yield from (f"{weak.overview}.", "", *result_lines(weak, cells(weak)))
    left_out = [f"- {line}" for line in (*judged.selection.left_out, *judged.fallen.left_out)]
    yield from ("## Not counted", "", *(left_out or ["Nothing."]))


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


def undecided(judged: Judged) -> list[str]:
    """What it would take to decide the rest, and treatments that changed nothing."""
    lines = [f"- {line}" for line in open_lines(judged.decided)]
    lines += [f"- {line}" for decisions in judged.found for line in decisions.idle]
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


def stage_lines(judged: Judged) -> Iterator[str]:
    """The gates, the stages of each seed, and later changes of the files of claims."""
    yield from ("# Stages and changes", "")
    # Papers whose claims are tested on the same stages have the same gates.
    gates = (line for decisions in judged.found for line in gate_lines(decisions.registry))
    for line in dict.fromkeys(gates):
        yield from (line, "")
    head = ("task", "model", "stage seed", "SFT loss", "proxy accuracy", "passes", "runs")
    every = (judged.selection, judged.fallen, *(cells(one) for one in judged.weak))
    files = [decisions.registry for decisions in judged.found]
    stages = [stage for file in files for one in every for stage in stages_of(file, one)]
    stages.sort(key=lambda stage: (stage.task, stage.model, stage.seed))
    yield from markdown(head, tuple(dict.fromkeys(stage.row for stage in stages)))
    changes = [
        f"- {change['date']}: {change['what']}"
        for file in files
        for change in file.file.get("changed", [])
    ]
    yield from ("", "## Changes of the claims after they were written", "", *(changes or ["None."]))


def gate_lines(registry: Registry) -> Iterator[str]:
    for task, bounds in registry.gates.items():
        texts = [
            f"{key} at {name} {value:g}"
            for key, bound in bounds.items()
            for name, value in bound.items()
        ]
        yield f"Gates of {task}, of {registry.file['written']}: {', '.join(texts)}."
