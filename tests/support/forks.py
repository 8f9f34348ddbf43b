"""Runs and forks of them in folders, without the command line."""

from __future__ import annotations

from pathlib import Path

from rlhf_lab.experiment import lifecycle
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.fork_past import Fork, fork_of
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from tests.support.examples import FACTS

QUIET = Console(quiet=True)


class Runs:
    """Trains configs into folders below `root`, and knows them by their folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.configs: dict[Path, Config] = {}

    def folder(self, name: str) -> Path:
        return self.root / name

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
