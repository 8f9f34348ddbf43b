"""Curves and tables of `openrlbenchmark.rlops --offline`, in a copy of the package."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote_plus

import numpy as np
import pandas as pd

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.packages.beside import Beside, require
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.exported import Exported, runs_to_export
from rlhf_lab_analysis.tables.open_rl_benchmark_export import write_benchmark
from rlhf_lab_analysis.words import label

PACKAGE = "openrlbenchmark"
ENTITY, PROJECT = "local", "rlhf_lab"
START = f"import runpy; runpy.run_module('{PACKAGE}.rlops', None, '__main__', True)"
# Beyond it rlops leaves legends out without a word.
MOST_CONDITIONS = 30
DRAWN = (".png", ".pdf", ".svg")


def by_open_rl_benchmark(
    records: Sequence[Record], metric: str, folder: Path | None
) -> list[Beside]:
    """Of each sweep and environment, what rlops makes of a metric of the last version.

    folder: where its plots are kept; None for no plots. Raises UserError if the package is not
    installed, there are no runs with the metric or too many conditions, or rlops fails.
    """
    require(PACKAGE)
    runs = [run for run in runs_to_export(records) if ends_of(run, metric)]
    if not runs:
        raise UserError(f"--with {PACKAGE}: no run has {metric}")
    groups: dict[tuple[str, str], list[Exported]] = {}
    for run in runs:
        key = run.record.facts.sweep, place_of(run.record).env
        groups.setdefault(key, []).append(run)
    with tempfile.TemporaryDirectory(prefix="rlhf-lab-rlops-") as place:
        site = Path(place)
        write_benchmark(runs, copy_of_package(site) / "dataset", ENTITY, PROJECT)
        return [one_group(site, key, own, metric, folder) for key, own in sorted(groups.items())]


def ends_of(run: Exported, metric: str) -> list[float]:
    """The metric of the run's own evaluations, by version."""
    return [
        float(row[metric]) for row in run.record.evals if metric in row and not row.get("label")
    ]


def one_group(
    site: Path,
    key: tuple[str, str],
    runs: Sequence[Exported],
    metric: str,
    folder: Path | None,
) -> Beside:
    """The table of a sweep in an environment: rlops' mean and deviation, and our mean."""
    sweep, env = key
    ours: dict[str, list[float]] = {}
    for run in runs:
        ours.setdefault(run.condition, []).append(ends_of(run, metric)[-1])
    if len(ours) > MOST_CONDITIONS:
        raise UserError(
            f"--with {PACKAGE}: {sweep} has {len(ours)} conditions in {env}, of which rlops shows "
            f"at most {MOST_CONDITIONS}: pass fewer runs"
        )
    name = "_".join(filter(None, (PACKAGE, sweep, env)))
    out = site / "out" / name
    run_rlops(site, env, list(ours), metric, out)
    theirs = table_of(out.with_suffix(".csv"))
    rows = [
        {
            "condition": condition,
            "seeds": len(values),
            PACKAGE: theirs[condition],
            "ours": float(np.mean(values)),
        }
        for condition, values in ours.items()
    ]
    note = (
        f"{label(metric)} of the last version. The deviation of rlops is over all seeds, without "
        "n - 1, and no interval; its curves join runs by the order of their rows"
    )
    drawn = kept(out.parent, name, folder) if folder else ()
    title = " in ".join(filter(None, (sweep, env)))
    return Beside(name, f"{title} by Open RL Benchmark", note, pd.DataFrame(rows), drawn)


def copy_of_package(site: Path) -> Path:
    """The package in a folder of ours: it reads only the data in its own folder."""
    found = find_spec(PACKAGE)
    assert found is not None and found.submodule_search_locations
    source = Path(next(iter(found.submodule_search_locations)))
    shutil.copytree(source, site / PACKAGE, ignore=shutil.ignore_patterns("dataset"))
    return site / PACKAGE


def run_rlops(site: Path, env: str, conditions: Sequence[str], metric: str, out: Path) -> None:
    """Plot and tabulate conditions. Raises UserError with its last line if it fails."""
    out.parent.mkdir(exist_ok=True)
    where = f"?we={ENTITY}&wpn={PROJECT}&ceik=env_id&cen=condition&metric={metric}"
    filters = [f"{condition}?cl={quote_plus(condition)}" for condition in conditions]
    arguments = [
        *("--filters", where, *filters, "--env-ids", env, "--offline", "--scan-history"),
        # The last version, and not the mean over all of them.
        *("--metric-last-n-average-window", "1", "--pc.time-unit", "s"),
        *("--output-filename", str(out)),
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START, *arguments],
        cwd=site,
        env=surroundings(site),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UserError(f"--with {PACKAGE}: rlops ended with code {done.returncode}: {last[0]}")


def surroundings(site: Path) -> Mapping[str, str]:
    """Its own copy first, and nothing written outside of it."""
    own = {name: str(site / "own") for name in ("WANDB_DIR", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR")}
    before = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, [str(site), before]))
    return {**os.environ, **own, "PYTHONPATH": path, "MPLBACKEND": "agg"}


def table_of(path: Path) -> dict[str, str]:
    """rlops' text for each condition."""
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    return dict(row)


def kept(place: Path, name: str, folder: Path) -> tuple[Path, ...]:
    """The plots, moved into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(path for path in place.glob(f"{name}*") if path.suffix in DRAWN)
    return tuple(Path(shutil.copy(path, folder / path.name)) for path in found)
