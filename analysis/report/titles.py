"""Name what a page compares, and its runs, so that names distinguish them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import pandas as pd

from rlhf_lab_analysis.ranges import listed
from rlhf_lab_analysis.report.groups import Group, differing, rank

# Parts of a title: plural, and the values that are named one by one.
NOUNS = {
    "algo": "algorithms",
    "mode": "modes",
    "correction": "corrections",
    "updates_per_round": "values of N",
    "passes": "values of T",
    "group_size": "values of K",
    "max_staleness": "values of S",
    "model": "policies",
    "task": "tasks",
    "proxy": "proxies",
    "reward": "rewards",
}
LETTERS = {"updates_per_round": "N", "passes": "T", "group_size": "K", "max_staleness": "S"}
MOST_VALUES, MOST_PARTS = 3, 2
LONGEST = 44


def page_title(groups: Sequence[Group]) -> str:
    """What the conditions of a page differ in, and where: `sync against async: online_dpo on
    tldr_nano, nano_s`."""
    cells = [group.cell for group in groups]
    if not cells:
        return "Runs without a comparison"
    parts = [name for name in differing(cells) if name in NOUNS]
    if "mode" in parts and "max_staleness" in parts:
        parts.remove("max_staleness")
    values = {name: sorted({cell.parts.get(name) for cell in cells}, key=rank) for name in NOUNS}
    if len(parts) <= MOST_PARTS:
        compared = "; ".join(difference(name, values[name]) for name in parts)
    else:
        compared = listed(f"{len(values[name])} {NOUNS[name]}" for name in parts)
    shared = [str(values[n][0]) for n in ("algo", "task", "model") if len(values[n]) == 1]
    where = listed(name for name in shared if name and name != "None")
    if not compared:
        return f"One condition: {groups[0].title}"
    return f"{compared} ({where})" if where else compared


def difference(name: str, values: Sequence[Any]) -> str:
    """The values of a part: `sync against async`, `N = 1, 4, 16`, `4 algorithms`."""
    texts = ["none" if value is None or value == "" else str(value) for value in values]
    if name in LETTERS:
        ends = listed(texts) if len(texts) <= MOST_VALUES else f"{texts[0]} to {texts[-1]}"
        return f"{LETTERS[name]} = {ends}"
    if len(texts) > MOST_VALUES:
        return f"{len(texts)} {NOUNS[name]}"
    ordered = sorted(texts, key=lambda text: text != "sync") if name == "mode" else texts
    return " against ".join(ordered)


def run_names(runs: pd.DataFrame) -> Mapping[str, str]:
    """A name for each run by its id: where it lies, less what all places share at the beginning."""
    places = {str(row["run"]): str(row["place"]) for row in runs.to_dict("records")}
    split = {run: PurePath(place).parts or (run,) for run, place in places.items()}
    shared = shared_parts(list(split.values()))
    names = {run: "/".join(parts[shared:]) or parts[-1] for run, parts in split.items()}
    short = {run: elided(name) for run, name in names.items()}
    return short if len({*short.values()}) == len({*names.values()}) else names


def shared_parts(paths: Sequence[Sequence[str]]) -> int:
    """How many folders all paths begin with; the last part of a path is not one of them."""
    most = min(len(path) for path in paths) - 1 if paths else 0
    return next((n for n in range(most) if len({path[n] for path in paths}) > 1), max(0, most))


def elided(name: str) -> str:
    """A long name with its beginning and its end."""
    if len(name) <= LONGEST:
        return name
    half = (LONGEST - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
