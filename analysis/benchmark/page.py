"""What the benchmark says, as the tables of docs/benchmark.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.questions.answers import Answer, Asked
from analysis.questions.every_question import Answers
from analysis.selection import Cell, Selection
from analysis.statistics.contrasts import by_seed, difference, in_pairs
from analysis.statistics.results import Method, Options
from analysis.tables.table import Tables

COLUMNS = ("condition", "runs", "win-rate, %", "KL, nats", "wall-clock, s", "completions")


def page(tables: Tables, selection: Selection, found: Answers, asked: Asked) -> list[str]:
    """All lines between the page's markers."""
    return [
        f"{tables.said}. Win-rates within {100 * asked.margin:g} points count as equal.",
        "",
        *verdict_tables(found),
        "## Results",
        "",
        "Last versions: means over seeds with 95% t intervals.",
        "",
        *result_tables(selection, asked),
        *left_out(found),
    ]


def verdict_tables(found: Answers) -> Iterator[str]:
    """A table of verdicts for each question."""
    for question, answers in found.given:
        yield from (f"## {question}", "", *table(HEAD, [row(one) for one in answers]), "")


HEAD = ("claim", "at", "verdict", "because", "runs")


def row(one: Answer) -> tuple[str, ...]:
    claim = f"{one.claim} ({one.where})"
    return claim, one.scale, f"**{one.verdict}**", one.reason, one.basis


def result_tables(selection: Selection, asked: Asked) -> Iterator[str]:
    """What each condition ended at, by sweep."""
    for sweep in dict.fromkeys(cell.sweep for cell in selection.cells):
        cells = [cell for cell in selection.cells if cell.sweep == sweep]
        yield from (f"### {sweep}", "", *table(COLUMNS, [result(one, asked) for one in cells]), "")


def result(cell: Cell, asked: Asked) -> tuple[str, ...]:
    """A condition's row."""
    return (
        f"{cell.parts['model']}: {cell.condition}",
        str(len(cell.seeds)),
        spread(cell.scores(asked.quality), 100),
        spread(cell.scores(asked.drift)),
        spread(cell.at_end("x/wall_seconds")),
        f"{min(cell.at_end('x/completions').values()):,.0f}",
    )


def spread(scores: dict[int, float], scale: float = 1) -> str:
    """A mean with its t interval; of one seed the value alone."""
    values = by_seed("scores", {seed: scale * value for seed, value in scores.items()})
    if len(values) < 2:
        return f"{next(iter(values.values())):.1f}"
    nothing = dict.fromkeys(values, 0.0)
    made = difference(in_pairs(values, nothing), Options(method=Method.t))
    return f"{made.point:.1f} [{made.low:.1f}, {made.high:.1f}]"


def left_out(found: Answers) -> list[str]:
    """What was not compared, and what was not asked for want of runs."""
    lines = [f"- {line}" for line in found.left_out]
    lines += [f"- not answered: {one.question} It takes {one.needs}" for one in found.unanswered]
    return ["## Not compared", "", *(lines or ["Nothing."]), ""]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table; bars in names are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(text.replace("|", r"\|") for text in line) + " |" for line in lines]
