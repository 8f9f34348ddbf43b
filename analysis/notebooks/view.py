"""What the cells of notebooks call: tables in, figures, tables and answers to look at out."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.registry.answers import Answer, Criteria
from rlhf_lab_analysis.comparison.registry.questions import answers_of, questions
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.markdown import escaped as markdown
from rlhf_lab_analysis.plots.command import selection_of
from rlhf_lab_analysis.plots.panels import Form
from rlhf_lab_analysis.plots.paper import paper_figure
from rlhf_lab_analysis.publication_tables.command import make_tables
from rlhf_lab_analysis.publication_tables.formats import as_markdown
from rlhf_lab_analysis.publication_tables.options import TableOptions
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.table import Tables

VARIABLE = "RLHF_LAB_TABLES"
BENCHMARK = Path(__file__).parents[1] / "benchmark" / "tables.parquet"
DPI = 85
# Colours of a stored picture: enough for lines and letters, at a third of the bytes.
COLOURS = 96
ENDS = ("final/gold/win_rate", "final/accuracy/mean", "final/kl/sft_k1", "x/updates")
ELSEWHERE = "**Claims of other questions compare these runs**: `rlhf-lab claims RUNS` lists them."
ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!|<>~$-])")


@dataclass(frozen=True)
class Shown:
    """What a cell shows: Markdown, each figure before its own. A terminal gets the plain text.

    pictures: for each figure its PNG and its Markdown; empty where there is none to show.
    """

    text: str
    pictures: tuple[tuple[bytes, str], ...] = ()

    def __repr__(self) -> str:
        return ESCAPE.sub(r"\1", self.text)

    def bundles(self) -> list[dict[str, str]]:
        """What Jupyter displays, one after the other."""
        if not self.pictures:
            return [{"text/plain": repr(self), "text/markdown": self.text}]
        found = []
        for content, below in self.pictures:
            plain = ESCAPE.sub(r"\1", below).partition("\n")[0]
            image = base64.b64encode(content).decode()
            found += [{"text/plain": plain, "image/png": image}] if content else []
            found.append({"text/plain": plain, "text/markdown": below})
        return found

    def _ipython_display_(self) -> None:
        from IPython import display

        show: Any = display.display
        for bundle in self.bundles():
            show(bundle, raw=True)


def source() -> str:
    """Where the numbers come from: what RLHF_LAB_TABLES names, else the tracked benchmark."""
    return os.environ.get(VARIABLE) or str(BENCHMARK)


def tables(place: str = "") -> Tables:
    """The tables of a place: saved ones, a folder of runs, or any other source."""
    return gather([place or source()])


def of_sweeps(runs: Tables, *names: str) -> Tables:
    """The runs of these sweeps, in either form; all runs if none is of them."""
    wanted = [form for name in names for form in (name, f"{name}_nano")]
    if runs.runs["sweep"].isin(wanted).any():
        return runs.only(sweep=wanted)
    return runs


def of_first_sweep(runs: Tables, *names: str) -> Tables:
    """The runs of the first of these sweeps that has any, in either form; all runs if none is of
    them."""
    for name in names:
        if runs.runs["sweep"].isin((name, f"{name}_nano")).any():
            return of_sweeps(runs, name)
    return runs


def about(runs: Tables) -> Shown:
    """A title of these runs: their policies, tasks and sweeps."""
    models, tasks, sweeps = (
        ", ".join(sorted(runs.runs[column].dropna().astype(str).unique()))
        for column in ("model", "task", "sweep")
    )
    return Shown(f"**{markdown(f'{models} on {tasks} ({sweeps})')}**")


def only(runs: Tables, column: str, value: str) -> Tables:
    """The runs whose column has this value; all runs if none has it."""
    return runs.only(**{column: value}) if runs.runs[column].eq(value).any() else runs


def ends(runs: Tables, most: int = 8) -> pd.DataFrame:
    """How the first conditions end, means over seeds: the tables are pandas data frames, with a
    row for each run in `runs.runs`, each judged version in `runs.versions`, and each recorded round
    in `runs.points`."""
    columns = [name for name in ENDS if name in runs.runs]
    return runs.runs.groupby("condition")[columns].mean().head(most).round(3)


def summary(runs: Tables) -> Shown:
    """How many runs and seeds, which, and what is wrong with them by kind."""
    kinds = [str(finding.kind) for finding in runs.findings]
    counted = ", ".join(f"{kind} {kinds.count(kind)}" for kind in dict.fromkeys(kinds))
    return Shown(markdown(f"{runs.overview}. Findings: {counted or 'none'}."))


def lines(*texts: str) -> Shown:
    """Texts below each other."""
    return Shown("\n".join(f"- {markdown(text)}" for text in texts))


def first_pair(compared: Sequence[Cell]) -> tuple[Cell, Cell]:
    """The first two conditions of one sweep and environment that share two seeds. Raises UserError
    if there are none."""
    for one, other in combinations(compared, 2):
        is_near = (one.sweep, one.env) == (other.sweep, other.env)
        if is_near and len({*one.seeds} & {*other.seeds}) > 1:
            return one, other
    raise UserError(
        f"no two of {len(compared)} conditions share two seeds: {VARIABLE} names other runs"
    )


def figure(name: str, runs: Tables) -> Shown:
    """A figure of the paper with a sentence about what it shows. Raises UserError without its
    runs."""
    drawn = paper_figure(name, selection_of(runs, Form.ends))
    return Shown(f"{name}\n{drawn.sentence}", ((png(drawn.figure), markdown(drawn.sentence)),))


def png(made: Figure) -> bytes:
    file = io.BytesIO()
    made.savefig(file, format="png", dpi=DPI, bbox_inches="tight")
    small = io.BytesIO()
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
            small, format="png", optimize=True
        )
    return small.getvalue()


def table(name: str, runs: Tables, options: TableOptions | None = None) -> Shown:
    """The tables of a name."""
    found = make_tables(name, runs, options)
    nothing = f"{name}: these runs have nothing to put in it"
    return Shown("\n".join(as_markdown(one) for one in found) or nothing)


def answer(question: str, runs: Tables, options: Criteria | None = None) -> Shown:
    """The verdicts of a question on these runs, claim by claim, or which runs it needs."""
    texts = [one.text for one in questions()]
    if question not in texts:
        raise UserError(f"no question {question!r}: choose one of {'; '.join(texts)}")
    found = answers_of(cells(runs), options or Criteria())
    lines = [line for one in found.every if one.question == question for line in answer_lines(one)]
    lines += [
        f"{markdown(one.question)} {one.reason} To make them: {one.needs}."
        for one in found.unanswered
        if one.question == question
    ]
    return Shown("\n".join(lines) or ELSEWHERE)


def answer_lines(one: Answer) -> list[str]:
    """The effect, the verdict, the claim and the runs that it stands on."""
    return [
        f"- {markdown(one.evidence)} **{one.verdict}**: {markdown(one.claim)} "
        f"({markdown(one.source)}, tested at {markdown(one.setting)})",
        f"    - {markdown(one.runs)}",
        *(f"    - warning: {markdown(text)}" for text in one.warnings),
    ]
