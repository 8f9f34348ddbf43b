"""Pages of runs that are made by hand."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from rlhf_lab_analysis.report.make import Options, html
from rlhf_lab_analysis.sources.record import Record
from tests.support import table_records as made
from tests.support.question_records import Made

# Means 0.80 and 0.70, standard deviation 0.02; with 3 seeds the t interval is ± 0.0497.
LOW_N, HIGH_N = (0.78, 0.80, 0.82), (0.68, 0.72, 0.70)
NASTY = """</script><script>alert(1)</script> <b>"&amp;'$title"""


def two_conditions() -> list[Record]:
    return [*Made().runs(LOW_N), *Made(per_round=16).runs(HIGH_N)]


def page(records: Sequence[Record], **options: Any) -> str:
    return html(made.tables(*records), Options(**options))


@functools.cache
def ladder_page() -> str:
    """The page of two conditions, which is made once for all that read it."""
    return page(two_conditions())


def data_of(text: str) -> dict[str, Any]:
    """What the page's script draws, with the columns of runs in place of their numbers."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    for group in data.get("groups", []):
        for run in group["runs"]:
            for of in ("versions", "rounds"):
                run[of] = {name: data["pool"][place] for name, place in run[of].items()}
    return data


class Texts(HTMLParser):
    """The rows of a page's tables, all texts, and the attributes of every element by name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.text = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        self._inside.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] in ("script", "style"):
            return
        self.text += data
        if any(tag in self._inside for tag in ("td", "th")) and data.strip():
            self.rows[-1][-1] = (self.rows[-1][-1] + " " + data.strip()).strip()

    def row(self, first: str) -> list[str]:
        """The first table row that begins so."""
        return next(row for row in self.rows if row and row[0] == first)


def nasty_records() -> list[Record]:
    """Names, places, states and a finding with everything that HTML and scripts could trip over."""
    return [
        replace(one, run=f"{NASTY} {n}", place=f"runs/{NASTY} {n}", facts=replace(
            one.facts, state=NASTY if n == 0 else one.facts.state, code=NASTY),
            config={**one.config, "algo": {"name": NASTY}, "note": {NASTY: NASTY}})
        for n, one in enumerate(Made().runs(LOW_N))
    ]  # fmt: skip


@functools.cache
def nasty_page() -> str:
    """Their page, with such a title too."""
    return page(nasty_records(), title=NASTY)
