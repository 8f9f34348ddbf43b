"""Runs and forks of them in folders, without the command line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.experiment.run.fork import Fork, fork_of
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.randomness import stable_hash
from tests.support.examples import FACTS

if TYPE_CHECKING:
    from tests.conftest import MakeConfig

QUIET = Console(quiet=True)


class Runs:
    """Trains configs into folders below `root`, and knows them by their folder.

    kept: a folder for parents, of which tests with the same options each get a copy.
    """

    def __init__(self, root: Path, kept: Path) -> None:
        self.root = root
        self.kept = kept
        self.configs: dict[Path, Config] = {}

    def folder(self, name: str) -> Path:
        return self.root / name

    def parent(self, make_config: MakeConfig, *options: str) -> Path:
        """A run with these options in the folder "parent"."""
        folder = self.folder("parent")
        config = make_config(*options, f"output.dir={folder}")
        kept = self.kept / f"{stable_hash(*options):x}"
        if kept.exists():
            shutil.copytree(kept, folder)
            self.configs[folder] = config
        else:
            shutil.copytree(self.train(config), kept)
        return folder

    def train(self, config: Config) -> Path:
        """Train a run, or a fork of one that is known."""
        fork = self.fork_of(config)
        folder = lifecycle.train(config, QUIET, {**FACTS, "fork": fork})
        self.configs[folder] = config
        return folder

    def fork_of(self, config: Config) -> Fork:
        return fork_of(config, self.configs.__getitem__)


def versions(folder: Path) -> list[tuple[int, int]]:
    """Round, and the version that wrote its first chunk, of every round."""
    rows = read_rows(folder / "schedule.jsonl")
    return [(row["round"], row["segments"][0][1]) for row in rows if not row["dropped"]]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
