"""docs/gallery.md: every figure that the tracked runs allow, and the claims with what decides
them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab_analysis.comparison.registry.decisions import Decisions
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.figures.catalogue import FIGURES, best_of, draw_pages, missing, page_name
from rlhf_lab_analysis.figures.claims_forest import claims_forest
from rlhf_lab_analysis.figures.figure_builder import DrawnFigure
from rlhf_lab_analysis.figures.style import write

HEAD = """# Gallery

Every figure of `rlhf-lab figures` that the tracked runs allow, of each sweep one page at most, made
of the kept tables by `make benchmark-page`. Beside each picture lie its numbers (`.csv`) and its
full caption (`.txt`): runs, levels and warnings. What the claims come to is in
[benchmark.md](benchmark.md); how figures are made is in [results.md](results.md).
"""
CLAIMS = "claims"


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
    lines = [HEAD]
    decided = [one for decisions in found for one in decisions.decided]
    for place, drawn in enumerate(claims_forest(decided)):
        lines += entry(page_name(CLAIMS, place), drawn, drawn.caption, folder, page)
    for name, spec in FIGURES.items():
        if (selection := best_of(name, selections)) is None:
            console.print(f"not drawn: {name}: {missing(name, selections[0])}")
            continue
        pages = draw_pages(name, selection)
        shown = one_of_each_sweep(pages)
        for place, drawn in enumerate(shown):
            lines += entry(page_name(name, place), drawn, f"{spec.caption}.", folder, page)
        if more := len(pages) - len(shown):
            lines += [f"{counted(more, 'more page')} by `rlhf-lab figures --only {name}`.", ""]
    page.write_text("\n".join(lines), encoding="utf-8")
    console.print(f"wrote {page} and {folder}")


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


def entry(name: str, drawn: DrawnFigure, caption: str, folder: Path, page: Path) -> list[str]:
    """Save a figure with its numbers and caption; the lines that show it."""
    place = folder / name
    write(drawn.figure, place, ["png"])
    drawn.data.to_csv(f"{place}.csv", index=False)
    Path(f"{place}.txt").write_text(drawn.caption + "\n", encoding="utf-8")
    shown = place.relative_to(page.parent).as_posix()
    links = f"[numbers]({shown}.csv), [full caption]({shown}.txt)"
    return [f"## {name}", "", f"![{name}]({shown}.png)", "", f"{caption} {links}.", ""]
