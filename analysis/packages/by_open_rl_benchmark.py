"""Curves and tables of `openrlbenchmark.rlops --offline`, with our means beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote_plus

import numpy as np
import pandas as pd

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.tables.exported import Exported, runs_to_export
from rlhf_lab_analysis.tables.open_rl_benchmark_export import write_benchmark

PACKAGE = "openrlbenchmark"
ENTITY, PROJECT = "local", "rlhf_lab"
START = f"import runpy; runpy.run_module('{PACKAGE}.rlops', None, '__main__', True)"
# Beyond it rlops leaves legends out without a word.
MOST_CONDITIONS = 30


def by_open_rl_benchmark(records: Sequence[Record], metric: str, folder: Path) -> list[Path]:
    """Write what rlops makes of a metric of the last version in each sweep and environment: its
    plots, and its means and deviations with our means as openrlbenchmark_SWEEP_ENV.csv. Raises
    UserError if there are no runs with the metric or too many conditions, or rlops fails."""
    groups: dict[tuple[str, str], list[Exported]] = {}
    for run in runs_to_export(records):
        if ends_of(run, metric):
            key = run.record.facts.sweep, place_of(run.record).env
            groups.setdefault(key, []).append(run)
    if not groups:
        raise UserError(f"--with {PACKAGE}: no run has {metric}")
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    # It reads only the data in its own folder, so that it runs in a copy.
    with tempfile.TemporaryDirectory(prefix="rlhf-lab-rlops-") as site:
        found = find_spec(PACKAGE)
        assert found is not None and found.submodule_search_locations
        source, copy = next(iter(found.submodule_search_locations)), Path(site, PACKAGE)
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("dataset"))
        every = [run for runs in groups.values() for run in runs]
        write_benchmark(every, copy / "dataset", ENTITY, PROJECT)
        for (sweep, env), runs in sorted(groups.items()):
            path = folder / f"{'_'.join(filter(None, (PACKAGE, sweep, env)))}.csv"
            write(Path(site), env, runs, metric, path)
            written += sorted(path.parent.glob(f"{path.stem}.*"))
    return written


def ends_of(run: Exported, metric: str) -> list[float]:
    """The metric of the run's own evaluations, by version."""
    return [
        float(row[metric]) for row in run.record.evals if metric in row and not row.get("label")
    ]


def write(site: Path, env: str, runs: Sequence[Exported], metric: str, path: Path) -> None:
    """rlops' mean and deviation of each condition, and our mean. The deviation is over all seeds,
    without n - 1, and no interval; its curves join runs by the order of their rows."""
    ours: dict[str, list[float]] = {}
    for run in runs:
        ours.setdefault(run.condition, []).append(ends_of(run, metric)[-1])
    if len(ours) > MOST_CONDITIONS:
        raise UserError(
            f"--with {PACKAGE}: {path.stem} has {len(ours)} conditions, of which rlops shows at "
            f"most {MOST_CONDITIONS}: pass fewer runs"
        )
    run_rlops(site, env, list(ours), metric, path.resolve().with_suffix(""))
    (theirs,) = pd.read_csv(path, dtype=str).to_dict("records")
    rows = [
        {
            "condition": condition,
            "seeds": len(values),
            PACKAGE: theirs[condition],
            "ours": np.mean(values),
        }
        for condition, values in ours.items()
    ]
    pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n")


def run_rlops(site: Path, env: str, conditions: Sequence[str], metric: str, out: Path) -> None:
    """Plot and tabulate conditions. Raises UserError with its last line if it fails."""
    where = f"?we={ENTITY}&wpn={PROJECT}&ceik=env_id&cen=condition&metric={metric}"
    filters = [f"{condition}?cl={quote_plus(condition)}" for condition in conditions]
    arguments = [
        *("--filters", where, *filters, "--env-ids", env, "--offline", "--scan-history"),
        # The last version, and not the mean over all of them.
        *("--metric-last-n-average-window", "1", "--pc.time-unit", "s"),
        *("--output-filename", str(out)),
    ]
    # Its own copy first, and nothing written elsewhere.
    own = {name: str(site / "own") for name in ("WANDB_DIR", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR")}
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START, *arguments],
        cwd=site,
        env={**os.environ, **own, "PYTHONPATH": path, "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UserError(f"--with {PACKAGE}: rlops ended with code {done.returncode}: {last[0]}")
