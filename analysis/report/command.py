"""`rlhf-lab report RUNS...`: one page about any mix of runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.report.make import Options, html, size_text
from rlhf_lab_analysis.tables.gather import gather


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add, own = parser.add_argument, Options()
    add("sources", nargs="+", metavar="RUNS", help="folders, saved FILE.parquet, or KIND:PLACE")
    add("--out", type=Path, default=Path("report.html"), help="the page (report.html)")
    add("--title", default="", help="what it is called (what the runs differ in)")
    add("--metric", default=own.metric, help=f"what claims are about ({own.metric})")
    add("--margin", type=float, default=own.margin, help="of it: what does not matter (0.02)")
    add("--no-texts", action="store_true", help="leave samples of prompts and responses out")


def check(given: argparse.Namespace) -> None:
    """Raises UserError for options that cannot be."""
    if given.out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {given.out}: choose a name that ends in .html")
    if not 0 < given.margin < float("inf"):
        raise UserError(
            f"--margin {given.margin:g}: pass the largest difference that does not matter, 0.02"
        )


def run(given: argparse.Namespace, console: Console) -> None:
    """Write the page and print what is in it."""
    check(given)
    with console.phase("reading the runs"):
        tables = gather(given.sources)
    with console.phase("making the page"):
        options = Options(
            given.title, given.metric, given.margin, given.out.parent, texts=not given.no_texts
        )
        text = html(tables, options)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")
    console.print(size_text(tables))
    if tables.findings:
        console.print(f"{counted(len(tables.findings), 'finding')}, listed on the page")
    console.print(f"wrote {given.out} ({len(text.encode()) / 1e6:.2f} MB)")
