"""Which files of a built site load something from elsewhere: scripts, styles, images, fonts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ATTRIBUTES = {
    "script": ("src",), "link": ("href",), "img": ("src", "srcset"), "iframe": ("src",),
    "source": ("src", "srcset"), "video": ("src",), "object": ("data",),
}  # fmt: skip
# What a <link> names without loading it.
NAMED_ONLY = {"canonical", "next", "prev", "alternate", "edit"}
STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(?:https?:)?//")


def is_elsewhere(value: str) -> bool:
    return value.startswith(("http://", "https://", "//"))


class Assets(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "link" and given.get("rel") in NAMED_ONLY:
            return
        for name in ATTRIBUTES.get(tag, ()):
            if is_elsewhere(given.get(name) or ""):
                self.found.append(f"<{tag} {name}={given[name]}>")


def of_page(text: str) -> list[str]:
    """What a page of HTML loads from elsewhere."""
    reader = Assets()
    reader.feed(text)
    return reader.found


def foreign_assets(site: Path) -> list[str]:
    """A line for each thing that a file of the site loads from elsewhere."""
    return [f"{path.relative_to(site)}: {what}" for path, what in _all(site)]


def _all(site: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(site.rglob("*.html")):
        for what in of_page(path.read_text(encoding="utf-8")):
            yield path, what
    for path in sorted(site.rglob("*.css")):
        for match in STYLE.finditer(path.read_text(encoding="utf-8")):
            yield path, match[0]
