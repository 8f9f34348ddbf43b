"""docs/gallery.md: every figure that the tracked runs allow, and the claims with what decides
them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab_analysis.comparison.registry.decisions import Decision, Decisions
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.figures.catalogue import FIGURES, best_of, draw_pages, missing, page_name
from rlhf_lab_analysis.figures.claims_forest import claims_forest
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.figures.style import write
from rlhf_lab_analysis.ranges import unique

HEAD = """# Gallery

Every figure of `rlhf-lab figures` that the tracked runs allow, of each sweep one page at most, made
of the kept tables by `make benchmark-page`. The first page of a figure is shown, and each other one
is folded below it, under the names of its sweeps. Beside each picture lie its numbers (`.csv`) and
its full caption (`.txt`): runs, levels and warnings. What the claims come to is in
[benchmark.md](benchmark.md); how figures are made is in [results.md](results.md).
"""
CLAIMS, TITLE_OF_CLAIMS = "claims", "Claims and the differences that decide them"
# Characters that GitHub removes when it makes an anchor of a heading.
NO_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Section:
    """A figure of the gallery. name: of its files. text: what stands below its title. pages: each
    with the sweeps or questions that it is about. more: how many pages of these sweeps are left
    out."""

    name: str
    title: str
    text: str
    pages: Sequence[tuple[str, DrawnFigure]]
    more: int = 0

    @property
    def link(self) -> str:
        """Its line of the contents."""
        anchor = NO_ANCHOR.sub("", self.title.lower()).replace(" ", "-")
        count = f" ({counted(len(self.pages), 'page')})" if len(self.pages) > 1 else ""
        return f"- [{self.title}](#{anchor}){count}"

    def save(self, folder: Path, page: Path) -> list[str]:
        """Save the pictures with their numbers and captions; the lines that show them."""
        lines = [f"## {self.title}", "", self.text, ""]
        for place, (about, drawn) in enumerate(self.pages):
            shown = picture(page_name(self.name, place), drawn, folder, page)
            lines += folded(about, shown) if place else [about, "", *shown]
        if self.more:
            lines += [f"The command draws {counted(self.more, 'more page')} of these sweeps.", ""]
        return lines


def write_gallery(
    selections: Sequence[Selection],
    found: Sequence[Decisions],
    page: Path,
    folder: Path,
    console: Console,
) -> None:
    """Draw all figures into the folder, each of the selection with the runs of its own sweeps, else
    of the first that allows it, and write the page that shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    contents, lines = [], []
    for section in sections(selections, found, console):
        contents.append(section.link)
        lines += section.save(folder, page)
    page.write_text("\n".join([HEAD, *contents, "", *lines]), encoding="utf-8")
    console.print(f"wrote {page} and {folder}")


def sections(
    selections: Sequence[Selection], found: Sequence[Decisions], console: Console
) -> Iterator[Section]:
    """The claims, then each figure that the runs allow; the console has why others are not."""
    decided = [one for decisions in found for one in decisions.decided]
    if forest := claims_forest(decided):
        pages = [(questions_of(drawn, decided), drawn) for drawn in forest]
        yield Section(CLAIMS, TITLE_OF_CLAIMS, forest[0].caption, pages)
    for name, spec in FIGURES.items():
        if (selection := best_of(name, selections)) is None:
            console.print(f"not drawn: {name}: {missing(name, selections[0])}")
            continue
        every = draw_pages(name, selection)
        shown = one_of_each_sweep(every)
        pages = [(sweeps_of(drawn), drawn) for drawn in shown]
        text = f"`rlhf-lab figures RUNS --only {name}`: {spec.title}."
        yield Section(name, spec.caption, text, pages, len(every) - len(shown))


def questions_of(drawn: DrawnFigure, decided: Sequence[Decision]) -> str:
    """The questions of a page of claims."""
    names = set(drawn.data["claim"])
    rows = (one.claim.row for one in decided if one.claim.name in names)
    return " ".join(unique(str(row["question"]) for row in rows))


def sweeps_of(drawn: DrawnFigure) -> str:
    return ", ".join(unique(drawn.data["sweep"]))


def one_of_each_sweep(pages: Sequence[DrawnFigure]) -> list[DrawnFigure]:
    """The pages without those of a sweep of which an earlier page is shown."""
    shown: list[DrawnFigure] = []
    seen: set[str] = set()
    for drawn in pages:
        sweeps = set(drawn.data["sweep"])
        if not sweeps & seen:
            shown.append(drawn)
        seen |= sweeps
    return shown


def picture(name: str, drawn: DrawnFigure, folder: Path, page: Path) -> list[str]:
    """Save a figure with its numbers and caption; the lines that show it."""
    place = folder / name
    write(drawn.figure, place, ["png"])
    drawn.data.to_csv(f"{place}.csv", index=False)
    Path(f"{place}.txt").write_text(drawn.caption + "\n", encoding="utf-8")
    shown = place.relative_to(page.parent).as_posix()
    links = f"[numbers]({shown}.csv), [full caption]({shown}.txt)"
    return [f"![{name}]({shown}.png)", "", f"{links}.", ""]


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Lines that a page shows when a reader clicks on their title. Python-Markdown, which builds
    the site, renders Markdown inside an HTML element only if the element has `markdown="1"`."""
    return [f'<details markdown="1"><summary>{title}</summary>', "", *lines, "</details>", ""]
