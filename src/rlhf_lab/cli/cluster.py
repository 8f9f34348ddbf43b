"""`rlhf-lab cluster fit`: the virtual cluster that behaves like a real asynchronous run."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.runs.trackers.console import Console

FITTED = (
    *("generators", "sequences", "step_seconds", "prefill_tokens_per_second"),
    *("round_seconds", "order"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["fit"], help="fit: take the rates from a run")
    parser.add_argument("run", type=Path, metavar="RUN", help="a run of mode=free or mode=async")
    text = "write the options there, as an option of config group `cluster`"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)


def show(options: argparse.Namespace, console: Console) -> int:
    """Print the rates of a run, and what they predict of it."""
    from rlhf_lab.experiment.planning.cluster_file import cluster_yaml
    from rlhf_lab.experiment.planning.cluster_fit import distance, fitted

    fit = fitted(options.run)
    lags, wall = fit.predicted()
    values = asdict(fit.options)
    console.table(
        f"virtual cluster fitted to {options.run}",
        ("option", "value"),
        [[f"cluster.{name}", text_of(values[name])] for name in FITTED],
    )
    console.table(
        "the run, and what the cluster predicts of it",
        ("", "run", "predicted (virtual)"),
        [
            ["wall-clock", f"{fit.wall:.1f} s", f"{wall:.1f} virtual s"],
            ["share of chunks by lag", shares(fit.lags), shares(lags)],
        ],
    )
    console.print(
        f"error of the wall-clock {100 * (wall / fit.wall - 1):+.1f}%, total variation of the lags "
        f"{distance(fit.lags, lags):.3f}"
    )
    if options.out:
        comment = f"Fitted to {options.run.resolve().name} by `rlhf-lab cluster fit`."
        options.out.write_text(cluster_yaml(fit.options, [comment]), encoding="utf-8")
        console.print(f"wrote {options.out}")
    return 0


def text_of(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(getattr(value, "value", value))


def shares(lags: Sequence[int]) -> str:
    """The share of each lag."""
    counts = Counter(lags)
    return ", ".join(f"{lag}: {100 * counts[lag] / len(lags):.0f}%" for lag in sorted(counts))


COMMAND = OptionsCommand(
    "cluster",
    "fit a virtual cluster to the timeline of a run",
    "fit runs/RUN --out conf/cluster/mine.yaml",
    usage="fit RUN [--out FILE]",
    add_options=add_options,
    action=show,
)
