"""What the cells of notebooks call: tables in, figures, tables and answers to look at out."""

from __future__ import annotations

import base64
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.questions import answers_of, questions
from rlhf_lab_analysis.comparison.selection import Selection, cells
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
ENDS = ("final/gold/win_rate", "final/accuracy/mean", "final/kl/sft_k1", "x/updates")
ELSEWHERE = "**Claims of other questions compare these runs**: `rlhf-lab claims RUNS` lists them."
ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+.!|<>~$-])")


@dataclass(frozen=True)
class Shown:
    """What a cell shows: a picture (PNG) if there is one, and Markdown below it. A terminal gets
    the plain text."""

    text: str
    picture: bytes = b""

    def __repr__(self) -> str:
        return ESCAPE.sub(r"\1", self.text)

    def bundles(self) -> list[dict[str, str]]:
        """What Jupyter displays, one after the other."""
        found = [{"text/plain": repr(self), "text/markdown": self.text}]
        if self.picture:
            image = base64.b64encode(self.picture).decode()
            found.insert(0, {"text/plain": "a figure", "image/png": image})
        return found

    def _ipython_display_(self) -> None:
        from IPython import display

        show: Any = display.display
        for bundle in self.bundles():
            show(bundle, raw=True)


def tables(place: str = "") -> Tables:
    """The tables of a place: saved ones, a folder of runs, or any other source; without one those
    that RLHF_LAB_TABLES names (`from_start`), else those of the tracked benchmark."""
    named = os.environ.get(VARIABLE)
    return gather([os.path.expanduser(place) or (from_start(named) if named else str(BENCHMARK))])


def from_start(place: str) -> str:
    """The place that RLHF_LAB_TABLES names, with `~/` as the home folder. A relative path is one of
    the folder where jupyter was started, which a kernel has from its shell as PWD, or of the
    kernel's own, which is that of the notebook. Raises UserError if it is in neither."""
    path = Path(place).expanduser()
    if path.is_absolute():
        return str(path)
    if ":" in place:  # of a tracker, or an address
        return place
    folders = list(dict.fromkeys([Path(os.environ.get("PWD") or os.getcwd()), Path.cwd()]))
    for folder in folders:
        if (folder / path).exists():
            return str(folder / path)
    places = " and ".join(map(str, folders))
    raise UserError(f"{VARIABLE}={place}: nothing of that name is in {places}: pass a whole path")


def of_sweeps(runs: Tables, *names: str) -> Tables:
    """The runs of these sweeps, in either form; all runs if none is of them."""
    wanted = [form for name in names for form in (name, f"{name}_nano")]
    return runs.only(sweep=wanted) if runs.runs["sweep"].isin(wanted).any() else runs


def of_first_sweep(runs: Tables, *names: str) -> Tables:
    """The runs of the first of these sweeps that has any; all runs if none is of them."""
    found = (of_sweeps(runs, name) for name in names)
    return next((one for one in found if one is not runs), runs)


def about(runs: Tables) -> Shown:
    """A title of these runs: their policies, tasks and sweeps."""
    models, tasks, sweeps = (
        ", ".join(sorted(runs.runs[column].dropna().astype(str).unique()))
        for column in ("model", "task", "sweep")
    )
    return Shown(f"**{markdown(f'{models} on {tasks} ({sweeps})')}**")


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


def figure(name: str, runs: Tables) -> Shown:
    """A figure of the paper with a sentence about what it shows. Raises UserError without its
    runs."""
    return figure_of(name, selection_of(runs, Form.ends))


def figure_of(name: str, selection: Selection) -> Shown:
    """The same of conditions that are known."""
    drawn, file = paper_figure(name, selection), io.BytesIO()
    drawn.figure.savefig(file, format="png", dpi=DPI, bbox_inches="tight")
    return Shown(markdown(drawn.sentence), file.getvalue())


def table(name: str, runs: Tables, options: TableOptions | None = None) -> Shown:
    """The tables of a name."""
    found = make_tables(name, runs, options)
    nothing = f"{name}: these runs have nothing to put in it"
    return Shown("\n".join(as_markdown(one) for one in found) or nothing)


def answer(question: str, runs: Tables) -> Shown:
    """The verdicts of a question on these runs, claim by claim: the effect, the verdict, the claim
    and the runs that it stands on; or which runs it needs."""
    texts = [one.text for one in questions()]
    if question not in texts:
        raise UserError(f"no question {question!r}: choose one of {'; '.join(texts)}")
    found, shown = answers_of(cells(runs), Criteria()), []
    for one in found.every:
        if one.question == question:
            tested = f"{markdown(one.source)}, tested at {markdown(one.setting)}"
            shown += [
                f"- {markdown(one.evidence)} **{one.verdict}**: {markdown(one.claim)} ({tested})",
                f"    - {markdown(one.runs)}",
                *(f"    - warning: {markdown(text)}" for text in one.warnings),
            ]
    for other in found.unanswered:
        if other.question == question:
            shown.append(f"{markdown(question)} {other.reason} To make them: {other.needs}.")
    return Shown("\n".join(shown) or ELSEWHERE)
