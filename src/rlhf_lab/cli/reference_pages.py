"""Pages of docs/ from the schema: python -m rlhf_lab.cli.reference_pages docs"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlhf_lab.experiment.config.groups import CLASSES
from rlhf_lab.experiment.config.keys import (
    OVERLAYS,
    Key,
    options_of,
    sections,
    single_keys,
    summary,
)
from rlhf_lab.experiment.config.other_names import page_table

# Groups that are composed at a second node too.
ALSO_AT = {"model": " (and `proxy`)", "reward": " (and `judge`)"}
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = ("| key | type | default | allowed | description |", "|---|---|---|---|---|")


def table(keys: Sequence[Key]) -> Iterator[str]:
    """A row for every key."""
    yield from HEAD
    for key in keys:
        about = f"{key.about} ({key.source})" if key.source else key.about
        default = key.default if key.default == "required" else f"`{key.default}`"
        cells = (f"`{key.name}`", key.kind, default, key.allowed, about)
        yield " | ".join(("", *(cell.replace("|", r"\|") for cell in cells), "")).strip()
    yield ""


def options(group: str) -> Iterator[str]:
    """The options of a group: what each is for, and what it sets."""
    for option in options_of(group):
        sets = f" Sets `{option.values}`." if option.values else ""
        yield f"- `{option.name}`: {option.about}{sets}".rstrip().removesuffix(":")


def reference() -> str:
    lines = [
        "# Config reference",
        "",
        "Generated from the schema by `make docs`; do not edit. Choose an option with",
        "`group=option`, a value with `key=value`; `rlhf-lab train --cfg job` shows the result,",
        "`rlhf-lab explain KEY` one key.",
        "",
        "## Single keys",
        "",
        *table(single_keys()),
    ]
    for group in CLASSES:
        where = f"`{group}`{ALSO_AT.get(group, '')}"
        lines += [f"## {group}", "", f"Values under {where}. Options:", "", *options(group), ""]
        for title, (part, keys) in sections().items():
            if title.partition("=")[0] == group:
                lines += [f"### {title}", ""] if "=" in title else []
                lines += [summary(part), "", *table(keys)]
    for title, (part, keys) in sections().items():
        if title.partition("=")[0] not in CLASSES:
            lines += [f"## {title}", "", summary(part), "", *table(keys)]
    lines += ["## Overlays", ""]
    for group in OVERLAYS:
        lines += [f"`{group}=`", "", *options(group), ""]
    return "\n".join(lines)


def with_table(page: str) -> str:
    """docs/coming_from.md with the table between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{chr(10).join(page_table())}\n{END}{after}"


def main(folder: Path) -> None:
    """Write config.md, and the table of coming_from.md."""
    (folder / "config.md").write_text(reference(), encoding="utf-8")
    page = folder / "coming_from.md"
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
