"""The documentation as a site: its navigation, and the check of what it loads. Builds nothing."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.pages

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs" / "site"
NAV = (SITE / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
LISTED = re.findall(r"- (?:[^\n:]+: )?([\w/-]+\.md)$", NAV, re.MULTILINE)

BENCHMARK = ("verdicts.md", "results.md", "stages.md", "figures.md")


def module(name: str) -> ModuleType:
    """A module of docs/site, which is no package."""
    spec = importlib.util.spec_from_file_location(name, SITE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert len(LISTED) == len(set(LISTED))
    assert {name for name in LISTED if "/" not in name} == pages


def test_every_notebook_is_in_the_navigation() -> None:
    notebooks = {path.stem for path in (ROOT / "analysis" / "notebooks").glob("*.ipynb")}
    listed = {Path(name).stem for name in LISTED if name.startswith("notebooks/")}
    assert listed == notebooks | {"index"}


def test_pages_made_of_code_are_in_the_navigation() -> None:
    pytest.importorskip("nbconvert", reason="needs pip install 'rlhf-lab[docs]'")
    made_pages = module("made_pages")
    # Its own tests make them, which takes a minute.
    made_pages.benchmark_pages = lambda: dict.fromkeys(BENCHMARK, "")  # type: ignore[attr-defined]
    made = made_pages.pages(ROOT)
    assert set(made) == {name for name in LISTED if "/" in name}
    commands = made["reference/commands.md"]
    assert "## train" in commands and "```sh\nrlhf-lab train " in commands


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/a.css">',
        '<img src="http://example.org/a.png">',
    ],
)
def test_what_is_loaded_from_elsewhere_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.html").write_text(text)
    assert len(module("check_site").foreign_assets(tmp_path)) == 1


def test_links_and_files_of_the_site_are_allowed(tmp_path: Path) -> None:
    page = (
        '<a href="https://arxiv.org">x</a><img src="a.png"><link rel="canonical" href="http://x">'
    )
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "a.css").write_text("a { background: url('a.png') }")
    assert module("check_site").foreign_assets(tmp_path) == []
    (tmp_path / "a.css").write_text("a { background: url('https://x/a.png') }")
    assert len(module("check_site").foreign_assets(tmp_path)) == 1
