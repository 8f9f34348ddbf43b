"""Pages of the site that are made when it is built: of code, notebooks and the benchmark."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import MarkdownExporter

from rlhf_lab.cli.main import COMMANDS
from rlhf_lab.runs import metric_names
from rlhf_lab_analysis.benchmark import page as benchmark
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.plots.command import selection_of
from rlhf_lab_analysis.plots.panels import Form
from rlhf_lab_analysis.plots.paper import FIGURES

NOTEBOOKS = Path("analysis/notebooks")
# The public modules of analysis, from reading runs to verdicts.
API = {
    "From runs to tables": ("tables.gather", "tables.table", "tables.store"),
    "Conditions, pairs of seeds, claims": (
        *("comparison.selection", "comparison.claims", "comparison.equal_kl"),
        *("comparison.registry.answers", "comparison.registry.questions"),
        *("comparison.registry.definitions", "comparison.registry.decisions"),
    ),
    "Statistics": (
        *("statistics.results", "statistics.intervals", "statistics.contrasts"),
        *("statistics.equivalence", "statistics.bootstrap", "statistics.aggregates"),
        *("statistics.curves", "statistics.pareto", "statistics.power"),
        *("statistics.decisions", "statistics.collapse", "statistics.boundary"),
    ),
    "Figures and tables": (
        *("plots.command", "plots.style", "plots.paper", "publication_tables.command"),
        *("publication_tables.options", "publication_tables.formats", "notebooks.view"),
    ),
}


def pages(root: Path) -> dict[str, str]:
    """Path below docs/ and Markdown of each page."""
    made = {
        "reference/commands.md": commands(),
        "reference/metrics.md": metric_names.reference(),
        "reference/api/index.md": api_index(),
        "notebooks/index.md": notebook_index(root),
        "start/contributing.md": contributing(root),
    }
    made |= {f"benchmark/{name}": text for name, text in benchmark_pages().items()}
    made |= {f"reference/api/{slug(title)}.md": api(title) for title in API}
    for path in notebooks(root):
        made[f"notebooks/{path.stem}.md"] = notebook(path)[0]
    return made


@cache
def judged() -> benchmark.Judged:
    return benchmark.judge()


@cache
def benchmark_pages() -> dict[str, str]:
    """Every verdict, result, stage and figure of the tracked benchmark (a minute)."""
    lines = ["# The paper's figures, of the benchmark's runs", ""]
    lines += ["`rlhf-lab figures analysis/benchmark/tables.parquet` draws them as PDF too.", ""]
    for name, one in figures().items():
        lines += [f"## {FIGURES[name].title}", "", one.text, "", f"![{one.text}]({name}.png)", ""]
    return benchmark.pages(judged()) | {"figures.md": "\n".join(lines)}


@cache
def figures() -> dict[str, view.Shown]:
    """The sentence and the picture of each figure of the paper."""
    selection = selection_of(judged().tables, Form.ends)
    return {name: view.figure_of(name, selection) for name in FIGURES}


def pictures(root: Path) -> dict[str, Path | bytes]:
    """Path below docs/ and content of each picture."""
    made: dict[str, Path | bytes] = {
        f"benchmark/{name}.png": one.picture for name, one in figures().items()
    }
    for path in notebooks(root):
        for name, content in notebook(path)[1].items():
            made[f"notebooks/{name}"] = content
    return made


def commands() -> str:
    """Every command with its help and an example."""
    lines = [
        "# Commands",
        "",
        "`rlhf-lab COMMAND --help` prints what stands here.",
        "",
        "| command | purpose |",
        "|---|---|",
        *(f"| [`{name}`](#{name}) | {one.summary} |" for name, one in COMMANDS.items()),
    ]
    for name, one in COMMANDS.items():
        example = f"rlhf-lab {name} {one.example}".strip()
        lines += ["", f"## {name}", "", one.summary, "", "```sh", example, "```", ""]
        lines += ["```text", one.help().strip(), "```"]
    return "\n".join([*lines, ""])


def slug(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


def api_index() -> str:
    """What the pages of the API are about."""
    lines = ["# Python API of analysis", "", "Import from `rlhf_lab_analysis`.", ""]
    for title, modules in API.items():
        names = ", ".join(f"`{name}`" for name in modules)
        lines.append(f"- [{title}]({slug(title)}.md): {names}")
    lines += ["", "```python", *EXAMPLE, "```", ""]
    return "\n".join(lines)


EXAMPLE = """
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.tables.gather import gather

tables = gather(["analysis/benchmark/tables.parquet"])   # or "runs", "wandb:me/project", "old.csv"
tables.runs                                              # a pandas data frame, one row a run
selection = cells(tables)                                # conditions with their seeds
""".strip().splitlines()


def api(title: str) -> str:
    """The documented functions and classes of some modules."""
    blocks = [f"::: rlhf_lab_analysis.{name}" for name in API[title]]
    return "\n\n".join([f"# {title}", *blocks, ""])


def notebooks(root: Path) -> list[Path]:
    return sorted((root / NOTEBOOKS).glob("*.ipynb"))


def notebook_index(root: Path) -> str:
    """The notebooks with their first sentences."""
    lines = [
        "# Notebooks",
        "",
        "Each asks one question of the tracked benchmark. They are in `analysis/notebooks`;",
        "`RLHF_LAB_TABLES=runs/mine` points them at runs of your own.",
        "",
    ]
    for path in notebooks(root):
        text = nbformat.read(path, as_version=4).cells[0].source
        title, _, rest = text.removeprefix("# ").partition("\n")
        first = on_site(" ".join(rest.strip().split("\n\n")[0].split()))
        lines.append(f"- [{title}]({path.stem}.md): {first}")
    return "\n".join([*lines, ""])


def notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook with its outputs as Markdown, and its pictures."""
    exporter: Any = MarkdownExporter()
    resources = {"unique_key": path.stem, "output_files_dir": path.stem}
    text, found = exporter.from_filename(str(path), resources=resources)
    # Tables of pandas look as all others do.
    text = re.sub(r"<style scoped>.*?</style>\n", "", text, flags=re.DOTALL)
    text = text.replace('<table border="1" class="dataframe">', "<table>")
    return on_site(text), found["outputs"]


def on_site(text: str) -> str:
    """A notebook's text with links from the folder of its page."""
    return text.replace("](../../docs/", "](../").replace("](../../README.md", "](../index.md")


def contributing(root: Path) -> str:
    """CONTRIBUTING.md, whose links start at the top of the repository."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.replace("](docs/", "](../")
