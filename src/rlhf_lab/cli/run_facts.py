"""What `rlhf-lab runs` shows of a run: its columns, and all facts for programs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rlhf_lab.cli.run_tree import branch, fork_text
from rlhf_lab.runs.manifest import error_of
from rlhf_lab.runs.summaries import RunSummary
from rlhf_lab.runs.trackers.console import seconds_text

FACTS = ("command", "task", "algo", "mode", "seed")
# Columns with a metric: of the last round, and of the last evaluation.
ROUND_METRICS = {"reward": "reward/mean", "KL": "kl/sampled_reference_k1"}
EVAL_METRICS = {"gold win-rate": "gold/win_rate"}
COLUMNS = (
    *("run", "state", "started", "wall", *FACTS, "rounds", *ROUND_METRICS, *EVAL_METRICS),
    "fork of",
)
DROPPED_FIRST = ("command", "seed", "task", "KL", "mode", "algo", "started", "reward", "wall")
# Keys of --sort, and of the facts for programs that they compare.
SORTED_BY = {
    "run": "run",
    "state": "state",
    "started": "started",
    "wall": "wall_seconds",
    **{fact: fact for fact in FACTS},
    "rounds": "rounds",
    "reward": "reward/mean",
    "kl": "kl/sampled_reference_k1",
    "gold": "gold/win_rate",
}


def row(run: RunSummary, depth: int = 0) -> list[str]:
    """One line of the table; what is not known is left empty. depth: runs above it in the tree of
    forks."""
    total, seconds = run.manifest.get("num_rounds"), wall_seconds(run)
    return [
        f"{branch(depth)}{run.name}",
        run.state,
        moment_text(started(run)),
        "" if seconds is None else seconds_text(seconds),
        *(str(run.manifest.get(fact, "")) for fact in FACTS),
        f"{run.rounds}/{total}" if total else str(run.rounds),
        *(number(run.last, name) for name in ROUND_METRICS.values()),
        *(number(run.last_eval, name) for name in EVAL_METRICS.values()),
        fork_text(run),
    ]


def number(metrics: Mapping[str, Any], name: str) -> str:
    """A metric in three digits; "" where there is none."""
    value = metrics.get(name)
    return f"{value:.3f}" if isinstance(value, int | float) else ""


def started(run: RunSummary) -> str:
    """When a run was started, in UTC; "" if that is unknown."""
    return str(run.manifest.get("started", ""))


def moment_text(moment: str) -> str:
    """Month, day and minute, in the time of this machine."""
    return f"{datetime.fromisoformat(moment).astimezone():%m-%d %H:%M}" if moment else ""


def wall_seconds(run: RunSummary) -> float | None:
    """Seconds of training, without evaluation and what came before; None before any round."""
    seconds = run.manifest.get("wall_seconds", run.last.get("seconds/wall"))
    return float(seconds) if isinstance(seconds, int | float) else None


def facts_of(run: RunSummary) -> dict[str, Any]:
    """All facts of a run, for programs; None for what is not known. Times are in UTC."""
    manifest = run.manifest
    return {
        "run": run.name,
        "folder": str(run.folder),
        "state": run.state,
        "started": started(run) or None,
        "ended": manifest.get("ended"),
        "wall_seconds": wall_seconds(run),
        **{fact: manifest.get(fact) for fact in (*FACTS, "correction", "model")},
        "rounds": run.rounds,
        "num_rounds": manifest.get("num_rounds"),
        **{name: run.last.get(name) for name in ROUND_METRICS.values()},
        **{name: run.last_eval.get(name) for name in EVAL_METRICS.values()},
        "fork": manifest.get("fork"),
        "content": manifest.get("content"),
        "error": error_of(manifest) or None,
        "problem": run.problem or None,
    }


def log_of(run: RunSummary) -> str:
    """The file with the run's output: where it was written, or in the folder of its sweep, which
    may have been moved; "" if there is none."""
    recorded = str(run.manifest.get("log") or "")
    name = run.folder.absolute()
    moved = [above / "logs" / f"{name.relative_to(above)}.log" for above in name.parents]
    places = [Path(recorded), Path(run.manifest.get("working_folder", "")) / recorded, *moved]
    return next((str(place) for place in places if recorded and place.is_file()), recorded)


def sort_key(run: RunSummary, key: str) -> tuple[bool, Any, str]:
    """Of --sort: runs without the value first, then ascending, then by name."""
    value = facts_of(run)[SORTED_BY[key]]
    return value is not None, 0 if value is None else value, run.name
