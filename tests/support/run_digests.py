"""Digests of short runs, every algorithm in every kind of mode, before and after a change that must
not change results: `python -m tests.support.run_digests FILE`.

A digest covers all metrics that no clock measures, and the last weights. Digests depend on the
processor and on the versions of the libraries, so the table is written and compared on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir

from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.experiment.config.schema import register
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.runs.trackers.console import Console
from tests.support.examples import FACTS
from tests.support.survival import outcome

ALGORITHMS = classes("algo")

SHORT = ("run.updates=8", "eval=none", "eval.snapshots=0", "sft.steps=4")
# Modes that every algorithm is run in, and those that are run for one algorithm of each kind.
MODES = {
    "sync": ("mode=sync",),
    "lagged": ("mode=lagged", "mode.max_staleness=2", "run.updates_per_round=2"),
}
MORE_MODES = {
    "thread": ("mode=async", "mode.executor=thread", "mode.max_staleness=2"),
    "process": ("mode=async", "mode.max_staleness=2"),
    "partial": ("mode=partial", "mode.max_staleness=2", "mode.segment_tokens=3"),
    "recycled": ("mode=partial", "mode.segment_tokens=3", "mode.over_provision=1.5"),
    "drawn": ("mode=lagged", 'mode.lag_probabilities="0.5,0.5"'),
    "passes": ("mode=lagged", "run.passes=2", "generator.chunk_groups=3"),
}
KINDS = ("online_dpo", "grpo", "ppo", "remax", "dapo")


def digests(root: Path) -> dict[str, str]:
    """The digest of every run, by mode and algorithm."""
    runs = [(mode, algo) for mode in MODES for algo in ALGORITHMS]
    runs += [(mode, algo) for mode in MORE_MODES for algo in KINDS]
    found = {}
    for mode, algo in runs:
        options = (*SHORT, *(MODES | MORE_MODES)[mode], f"algo={algo}")
        base = ["debug=tiny", f"output.cache={root}/cache", f"output.root={root}/runs"]
        config = typed(compose("config", [*base, "output.quiet=true", *options]))
        rows, weights = outcome(lifecycle.train(config, Console(quiet=True), FACTS))
        text = json.dumps([rows, weights], sort_keys=True)
        found[f"{mode} {algo}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, or compare with it: exit code 1 and the names of the runs that differ."""
    parser = argparse.ArgumentParser(
        description="Digests of short runs, before and after a change."
    )
    parser.add_argument("table", type=Path, help="JSON; written if there is none, else compared")
    table = parser.parse_args(arguments).table
    torch.set_num_threads(1)
    register()
    with (
        tempfile.TemporaryDirectory() as name,
        initialize_config_dir(str(conf_folder()), version_base="1.3"),
    ):
        found = digests(Path(name))
    if not table.exists():
        table.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"wrote {len(found)} digests to {table}\n")
        return 0
    before = json.loads(table.read_text(encoding="utf-8"))
    changed = [run for run in before | found if before.get(run) != found.get(run)]
    sys.stdout.write("".join(f"changed: {run}\n" for run in changed))
    sys.stdout.write(f"{len(found) - len(changed)} of {len(before)} digests are as before\n")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
