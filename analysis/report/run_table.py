"""Every run of the page: state, seed, code, findings, and the way to its files."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from analysis.figures.names import label
from analysis.report.markup import Markup, element
from analysis.report.numbers import NONE, text_of
from analysis.report.results import sortable
from analysis.sources.record import flat_config
from analysis.tables.table import Tables

# What `rlhf-lab timeline` draws, and what it is drawn from.
TIMELINES = ("timeline.html", "timeline.jsonl")
BEFORE = ("condition", "seed", "state")
AFTER = ("rounds", "versions", "wall-clock, s", "findings", "code", "files", "config")
Title = Mapping[tuple[str, str, str], str]


def run_table(tables: Tables, titles: Title, metric: str, beside: Path) -> Markup:
    """The table of runs. titles: short names of conditions by sweep, environment and condition, in
    order. beside: the page's folder, which links are relative to."""
    order = list(titles)
    rows = sorted(
        tables.runs.to_dict("records"), key=lambda row: (place_in(order, key_of(row)), key_of(row))
    )
    several = tables.runs["env_id"].nunique() > 1
    made = [run_row(row, titles, several, metric, beside) for row in rows]
    env = ["environment"] if several else []
    return sortable("Runs", ["run", *env, *BEFORE, label(metric), *AFTER], made)


def key_of(row: Mapping[Any, Any]) -> tuple[str, str, str]:
    return str(row["sweep"]), str(row["env_id"]), str(row["condition"])


def place_in(order: Sequence[tuple[str, str, str]], key: tuple[str, str, str]) -> int:
    return order.index(key) if key in order else len(order)


def run_row(
    row: Mapping[Any, Any], titles: Title, has_env: bool, metric: str, beside: Path
) -> Markup:
    place, run, state = str(row["place"]), str(row["run"]), str(row["state"])
    problems = [line for line in str(row["problems"]).splitlines() if line]
    title = titles.get(key_of(row), str(row["condition"]))
    texts = [str(row["env_id"]), title] if has_env else [title]
    counts = [rounds_of(row), whole(row["versions"])]
    is_good = state == "finished"
    return element(
        "tr",
        element("th", Path(place).name or run, scope="row", title=f"{place} ({run})"),
        *(element("td", text, class_="text") for text in texts),
        element("td", whole(row["seed"]), class_="number", data_value=whole(row["seed"])),
        element("td", state, class_=f"text state {'good' if is_good else 'doubtful'}"),
        number(value_of(row, metric)),
        *(element("td", text, class_="number", data_value=text.split(" ")[0]) for text in counts),
        number(value_of(row, "x/wall_seconds")),
        element("td", problem_list(problems), data_value=str(len(problems))),
        element("td", element("code", str(row["code"])[:8] or NONE), class_="text"),
        element("td", *links(place, beside), class_="text"),
        element("td", config_box(run), class_="text"),
        data_run=run,
    )


def value_of(row: Mapping[Any, Any], column: str) -> float:
    """A number of a run: of its last evaluation, else its last round, else a cost."""
    for name in (f"final/{column}", f"last/{column}", column):
        if isinstance(row.get(name), float):
            return float(row[name])
    return math.nan


def number(value: float) -> Markup:
    sorts_by = repr(value) if math.isfinite(value) else ""
    return element("td", text_of(value), class_="number", data_value=sorts_by)


def whole(value: Any) -> str:
    return NONE if pd.isna(value) else str(int(value))


def rounds_of(row: Mapping[Any, Any]) -> str:
    """Recorded rounds, and how many were planned where that is another number."""
    done, planned = whole(row["points"]), row["planned_rounds"]
    return done if pd.isna(planned) or int(planned) == row["points"] else f"{done} of {planned}"


def problem_list(problems: Sequence[str]) -> Markup:
    if not problems:
        return element("span", "none", class_="quiet")
    inner = element("ul", *(element("li", line) for line in problems))
    return element("details", element("summary", f"{len(problems)}"), inner)


def links(place: str, beside: Path) -> list[Markup]:
    """Links to the config and timeline of a run that is a folder of this machine. Of the timeline
    the drawing, if `rlhf-lab timeline RUN` made one."""
    folder = Path(place)
    found = [name for name in ("config.yaml",) if (folder / name).is_file()]
    found += [name for name in TIMELINES if (folder / name).is_file()][:1]
    if not found:
        return [element("span", NONE, class_="quiet")]
    made = [element("a", name, href=relative(folder / name, beside)) for name in found]
    return [element("span", link, class_="file") for link in made]


def relative(path: Path, beside: Path) -> str:
    """The way from the page to a file, as a link."""
    way = os.path.relpath(path.resolve(), beside.resolve())
    return quote(Path(way).as_posix())


def config_box(run: str) -> Markup:
    """Filled by the page's script when it is opened."""
    return element(
        "details", element("summary", "config"), element("pre"), class_="config", data_run=run
    )


def configs(tables: Tables) -> dict[str, Any]:
    """Every run's config as `key: value`: what most runs have, and what a run has of its own."""
    flat = {
        str(row["run"]): {
            key: as_text(v) for key, v in flat_config(json.loads(row["config"])).items()
        }
        for row in tables.runs.to_dict("records")
    }
    counts: dict[str, Counter[str]] = {}
    for config in flat.values():
        for key, value in config.items():
            counts.setdefault(key, Counter())[value] += 1
    common = {key: max(sorted(held), key=held.__getitem__) for key, held in counts.items()}
    own = {
        run: {
            **{key: value for key, value in config.items() if common[key] != value},
            **dict.fromkeys(key for key in common if key not in config),
        }
        for run, config in flat.items()
    }
    return {"common": common, "own": own}


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
