"""`rlhf-lab attribute`: fork a collapse over what could have caused it; report what removes it."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rlhf_lab.cli.analysis import extra_needed
from rlhf_lab.cli.arguments import recorded_config
from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.cli.exit_codes import message, refusals
from rlhf_lab.cli.train import FORK
from rlhf_lab.runs.folder import MANIFEST, manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError

ROUNDS = re.compile(r"round=(\d{1,9})(?:\.\.(\d{1,9}))?")
PARTS = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="the run that collapsed")
    add("rounds", metavar="round=R..Q", help="the rounds to fork it at, before its collapse")
    add("--metric", default="reward/mean", metavar="NAME", help="what collapsed (reward/mean)")
    add("--last", type=int, default=3, metavar="N", help="rounds of a mean (3)")
    add("--rate", type=float, default=0.25, metavar="X", help="factor of the learning rate (0.25)")
    text = "of a run without one (truncated_is)"
    add("--correction", default="truncated_is", metavar="NAME", help=text)
    add("--out", type=Path, metavar="FOLDER", help="where the forks go (RUN-attribution)")


def rounds_in(text: str) -> range:
    """The rounds of `round=R..Q`, both included, or of `round=R`."""
    found = ROUNDS.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if first > last:
        raise UserError(f"{text} names no rounds: write round=R..Q, such as round=20..24")
    return range(first, last + 1)


def factors_of(
    config: Mapping[str, Any], rate: float, correction: str
) -> dict[str, tuple[str, ...]]:
    """What could have caused a collapse, with the overrides of a fork that takes it away."""
    found: dict[str, tuple[str, ...]] = {}
    if config["mode"]["max_staleness"]:
        found["lag"] = ("mode=sync",)
    found["rate"] = (f"optim.lr={config['optim']['lr'] * rate!r}",)
    has_one = config["correction"]["name"] != "none"
    found["correction"] = ("correction=none" if has_one else f"correction={correction}",)
    if config["generator"].get("round_weights", "none") != "none":
        found["mismatch"] = ("generator.round_weights=none",)
    run = config["run"]
    groups = run["groups_per_update"] * run["updates_per_round"]
    for rows in parts_of(groups, run["group_size"]):
        if rows:
            found[f"rows {rows[0]} to {rows[-1]}"] = (f"fork.without_rows={rows}".replace(" ", ""),)
    return found


def parts_of(groups: int, size: int) -> list[list[int]]:
    """The rows of each tenth of a batch, of whole groups; of fewer groups some are empty."""
    edges = [groups * part // PARTS for part in range(PARTS + 1)]
    return [list(range(start * size, end * size)) for start, end in itertools.pairwise(edges)]


def run_forks(
    parent: Path, out: Path, rounds: range, factors: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """Train a fork for every factor and round, where there is none yet. Returns their folders by
    factor, and the reasons for which factors cannot be forked."""
    done: dict[str, list[Path]] = {}
    refused: dict[str, str] = {}
    for factor, changes in factors.items():
        for round_ in rounds:
            folder = out / f"{factor.replace(' ', '_')}-{round_}"
            where = (f"output.dir={folder}", "output.resume=true", "output.quiet=true")
            manifest = folder / MANIFEST
            try:
                if not manifest.is_file() or read_manifest(manifest)["state"] != "finished":
                    FORK.run([str(parent), f"round={round_}", *changes, *where])
            except refusals() as error:
                refused[factor] = message(error)
                break
            done.setdefault(factor, []).append(folder)
    return done, refused


def attribute(options: argparse.Namespace, console: Console) -> int:
    with extra_needed():
        study = import_module("rlhf_lab_analysis.studies.attribution")
    rounds, parent = rounds_in(options.rounds), options.run.absolute()
    manifest_path(parent)
    collapse = study.collapse_of(parent, rounds[0], options.metric, options.last)
    out = (options.out or parent.with_name(f"{parent.name}-attribution")).absolute()
    factors = factors_of(recorded_config(parent), options.rate, options.correction)
    forks, refused = run_forks(parent, out, rounds, factors)
    study.report(collapse, forks, factors, refused, console)
    return 0


ATTRIBUTE = OptionsCommand(
    "attribute",
    "fork a collapse over what could have caused it, and report what removes it",
    "runs/RUN round=20..24",
    usage="RUN round=R..Q [--metric NAME] [--last N] [--rate X] [--correction NAME] [--out FOLDER]",
    completes="folders",
    add_options=add_options,
    action=attribute,
)
