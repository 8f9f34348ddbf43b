"""Whether forks without a change end as their parents, in every kind of mode; the seconds that they
take to come to their round, and the bytes of a kept state: `python -m tests.support.fork_digests`.

A run is trained in each mode, with a checkpoint every third round; then pairs of a run and a round
are drawn at random, and each is forked without a change. Exit code 1 if a digest differs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.schema import register
from rlhf_lab.experiment.config.typed import typed
from tests.support.forks import Runs
from tests.support.survival import outcome

EVERY = 3
COMMON = (
    *("debug=tiny", "algo=grpo", "run.group_size=4", "eval=none", "eval.snapshots=0"),
    *("checkpoint.minutes=0", f"checkpoint.keep_every={EVERY}", "output.quiet=true"),
)
LAGGED = ("mode=lagged", "mode.max_staleness=2")
FREE = ("mode=free", "mode.executor=thread")
MODES = {
    "sync": ("mode=sync",),
    "lagged": LAGGED,
    "drawn": (*LAGGED, 'mode.lag_probabilities="0.2,0.4,0.4"'),
    "thread": ("mode=async", "mode.executor=thread", "mode.max_staleness=2"),
    "process": ("mode=async", "mode.max_staleness=2"),
    "partial": ("mode=partial", "mode.segment_tokens=3"),
    "free": FREE,
}


@dataclass(frozen=True)
class Trial:
    """One fork: its mode and round, whether it ended as its parent, and the seconds from the start
    of its training to its round."""

    mode: str
    round: int
    is_equal: bool
    seconds: float


def config(root: Path, rounds: int, *overrides: str) -> Config:
    where = (f"output.cache={root}/cache", f"run.updates={rounds}")
    return typed(compose("config", [*COMMON, *where, *overrides]))


def pairs(number: int, rounds: int, seed: int) -> list[tuple[str, int]]:
    """Modes in turn, each with a random round of its run."""
    rng = random.Random(seed)
    names = list(MODES)
    return [(names[i % len(names)], rng.randrange(1, rounds)) for i in range(number)]


def fork(runs: Runs, rounds: int, number: int, mode: str, round_: int) -> Trial:
    """Fork a run at a round, without a change; one of `free` along its schedule."""
    parent = runs.folder(mode)
    same = MODES[mode] if mode != "free" else ("mode=recorded", f"mode.schedule={parent}")
    of = (f"fork.parent={parent}", f"fork.round={round_}", f"output.dir={runs.root}/fork-{number}")
    folder = runs.train(config(runs.root, rounds, *same, *of))
    is_equal = outcome(folder)[1] == outcome(parent)[1]
    return Trial(mode, round_, is_equal, facts(folder)["fork"]["seconds"])


def facts(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return found


def line(runs: Runs, mode: str, trials: Sequence[Trial]) -> str:
    """The forks of one run."""
    kept = statistics.fmean(facts(runs.folder(mode))["checkpoints"]["bytes"]) / 1000
    equal = f"{sum(one.is_equal for one in trials)} of {len(trials)}"
    places = ", ".join(str(one.round) for one in trials)
    again = statistics.fmean(one.round % EVERY for one in trials)
    seconds = statistics.fmean(one.seconds for one in trials)
    return f"| {mode} | {places} | {equal} | {again:.1f} | {seconds:.2f} | {kept:.0f} |\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, fork, compare. Returns 1 if a fork ended otherwise than its parent."""
    parser = argparse.ArgumentParser(description="Forks without a change against their parents.")
    parser.add_argument("--pairs", type=int, default=20, help="forks (20)")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each run (8)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of rounds (1)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    register()
    with (
        tempfile.TemporaryDirectory() as name,
        initialize_config_dir(str(conf_folder()), version_base="1.3"),
    ):
        runs = Runs(Path(name), Path(name) / "kept")
        rounds, trials = options.rounds, []
        for mode, own in MODES.items():
            runs.train(config(runs.root, rounds, *own, f"output.dir={runs.folder(mode)}"))
        for number, (mode, round_) in enumerate(pairs(options.pairs, rounds, options.seed)):
            trials.append(fork(runs, rounds, number, mode, round_))
        sys.stdout.write("| mode | rounds | equal | repeated | seconds to begin | kB a state |\n")
        sys.stdout.write("|---|---|---|---|---|---|\n")
        for mode in MODES:
            if own_trials := [one for one in trials if one.mode == mode]:
                sys.stdout.write(line(runs, mode, own_trials))
    return int(not all(one.is_equal for one in trials))


if __name__ == "__main__":
    sys.exit(main())
