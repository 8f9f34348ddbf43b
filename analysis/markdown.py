"""Tables of texts as Markdown, and pages of docs/ whose tables commands rewrite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

IN_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in r"\`*_[]|~$#"})
IN_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True)
class Table:
    """Rows of texts under a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def markdown(self) -> list[str]:
        """The lines of the table in Markdown, below its title in bold."""
        return [f"**{self.title}**", "", *rows_of(self.columns, self.rows)]


def one_line(text: str) -> str:
    """A text without line breaks, with what cannot be printed written out."""
    spaced = " ".join(text.split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in spaced)


def escaped(text: str) -> str:
    """A text that Markdown shows as it is, in a cell of a table too."""
    return one_line(text).translate(IN_HTML).translate(IN_MARKDOWN)


def rows_of(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool] = ()
) -> list[str]:
    """The lines of a Markdown table; the texts are Markdown already. right: columns of numbers."""
    rule = ["--:" if is_right else "---" for is_right in right] or ["---"] * len(columns)
    lines = [columns, rule, *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def split_at_markers(page: Path) -> tuple[str, str]:
    """The text of a page up to its first marker and from its second one on, markers included.

    Raises UserError unless it has each marker once, on a line of its own, and in order.
    """
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True) if page.is_file() else []
    begins, ends = (
        [number for number, line in enumerate(lines) if line.strip() == marker]
        for marker in (BEGIN, END)
    )
    if len(begins) != 1 or len(ends) != 1 or begins > ends:
        raise UserError(
            f"--docs={page} is no page with a line {BEGIN} and, after it, a line {END}, once "
            "each: add them where the tables are to stand"
        )
    return "".join(lines[: begins[0] + 1]), "".join(lines[ends[0] :])


def publish(
    caption: str,
    notes: Sequence[str],
    tables: Sequence[Table],
    page: Path | None,
    console: Console,
) -> None:
    """Print caption, notes and tables, and write them between the markers of the page if there is
    one."""
    for line in (caption, *notes):
        console.print(line)
    for table in tables:
        console.table(table.title, table.columns, table.rows)
    if page:
        write_between_markers(page, caption, notes, tables)
        console.print(f"wrote {page}")


def write_between_markers(
    page: Path, caption: str, notes: Sequence[str], tables: Sequence[Table]
) -> None:
    """Put caption, notes and tables between the markers of a page; the rest of it stays."""
    before, after = split_at_markers(page)
    lines = [caption, "", *(f"- {note}" for note in notes), *([""] if notes else [])]
    for table in tables:
        lines += [*table.markdown, ""]
    page.write_text(before + "\n".join(["", *lines, after]), encoding="utf-8")
