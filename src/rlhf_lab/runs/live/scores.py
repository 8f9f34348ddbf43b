"""The scores of a run's evaluated versions, as evals.jsonl has them so far."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.runs.folder import EVALS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.live.rows import finite
from rlhf_lab.runs.reading import Unreadable

# What is shown of an evaluation: the first of these that its newest row has.
KEYS = {"win-rate": "gold/win_rate", "judge": "gold/mean", "proxy": "proxy/mean"}


@dataclass(frozen=True)
class Scores:
    """Versions, rising, and what each is worth. name: of the number; "" where there is none."""

    name: str = ""
    versions: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


class ScoreFile:
    """Reads a run's evals.jsonl again when it has changed. It never raises: a damaged file leaves
    the scores as they were."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / EVALS
        self._changed: tuple[int, int, int] | None = None
        self._scores = Scores()

    def read(self) -> Scores:
        """The scores up to now."""
        try:
            status = os.stat(self._path)
            changed = (status.st_mtime_ns, status.st_size, status.st_ino)
            if changed != self._changed:
                self._changed = changed
                self._scores = scores_in(self._path)
        except (OSError, Unreadable):
            pass
        return self._scores


def scores_in(path: Path) -> Scores:
    """The scores of a file of evaluations."""
    rows = sorted(read_rows(path), key=lambda row: int(row["version"]))
    for name, key in KEYS.items():
        if rows and finite(rows[-1].get(key)) is not None:
            found = [(int(row["version"]), finite(row.get(key))) for row in rows]
            known = [(version, value) for version, value in found if value is not None]
            return Scores(name, tuple(v for v, _ in known), tuple(value for _, value in known))
    return Scores()
