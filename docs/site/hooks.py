"""What mkdocs does beyond the pages of docs/: pages made of the code, and the check of the site."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import Abort
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).parent))

import made_pages
from check_site import foreign_assets

ROOT = Path(__file__).resolve().parents[2]
# Pages that stand elsewhere on the site than in the repository.
MOVED = {"../README.md": "index.md", "../CONTRIBUTING.md": "start/contributing.md"}
# [concepts.md](concepts.md#round), which is right on GitHub, reads as the page's title on the site.
NAMED = re.compile(r"\[(\w+)\.md\]\((\w+\.md(?:#[^)]*)?)\)")
WORKER = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add what is made of the code, of notebooks and of the tracked benchmark."""
    for path, text in made_pages.pages(ROOT).items():
        files.append(File.generated(config, path, content=text))
    for path, source in made_pages.pictures(ROOT).items():
        given = {"content": source} if isinstance(source, bytes) else {"abs_src_path": str(source)}
        files.append(File.generated(config, path, **given))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to files outside docs/ lead to their page of the site; others become plain code."""
    if "/" in page.file.src_uri:
        return markdown

    def inside(match: re.Match[str]) -> str:
        return f"]({MOVED[match[1]]})" if match[1] in MOVED else match[0]

    def titled(match: re.Match[str]) -> str:
        return f"[{title_of(ROOT / 'docs' / f'{match[1]}.md')}]({match[2]})"

    return LINK.sub(inside, NAMED.sub(titled, markdown))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme's worker for pages opened as files comes from a server: ours lies beside them."""
    return output.replace(WORKER, get_relative_url("assets/file_worker.js", page.file.url))


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The same in pages that are no documents, such as 404.html."""
    return output_content.replace(WORKER, "assets/file_worker.js")


def title_of(page: Path) -> str:
    """A page's heading, up to its colon."""
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ").partition(":")[0]


def on_post_build(config: Any) -> None:
    """Refuse a site that loads anything from elsewhere."""
    if found := foreign_assets(Path(config["site_dir"])):
        raise Abort("the site loads from elsewhere:\n  " + "\n  ".join(found))
