"""The files of a run that is still being written, read again and again: rounds, newest sample,
scores of evaluated versions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import EVALS, METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import MEBIBYTE, Unreadable, file_size, parse_json

# Of a longer file only the end is read: some 10,000 rounds.
MOST_BYTES = 64 * MEBIBYTE
NUMBERS = {
    "reward": "reward/mean",
    "kl": "kl/sampled_reference_k1",
    "entropy": "update/entropy",
    "loss": "update/loss",
    "grad_norm": "update/grad_norm",
    "length": "sample/length",
    "eos_rate": "sample/eos_rate",
    "version": "sample/version",
    "lag_rounds": "lag/rounds_mean",
    "lag_updates": "lag/updates_mean",
    "wall": "seconds/wall",
    "wait": "seconds/wait",
    "generator_wait": "seconds/generator_wait",
    "generate": "seconds/generate",
    "score": "seconds/score",
    "train": "seconds/train",
    "generated": "total/generated_tokens",
    "trained": "total/trained_tokens",
    "dropped": "dropped/groups",
    "unscored": "sample/groups_unscored",
    "restarts": "timing/generator_restarts",
}
HISTOGRAMS = ("lag/rounds_histogram", "lag/updates_histogram")
# Enough for a line: its texts are bounded by the model's context.
TAIL_BYTES = MEBIBYTE
# File, key of the response, key of its score.
SOURCES = (("rollouts.jsonl", "response", "reward"), ("samples.jsonl", "sample", "gold"))
# What is shown of an evaluation: the first of these that its newest row has.
KEYS = {"win-rate": "gold/win_rate", "judge": "gold/mean", "proxy": "proxy/mean"}


@dataclass(frozen=True)
class RoundRow:
    """A round. numbers: by the names of NUMBERS, without those that are missing or not
    finite. rounds, updates: samples by their lag."""

    step: int
    numbers: Mapping[str, float]
    rounds: Mapping[int, int]
    updates: Mapping[int, int]

    def get(self, name: str) -> float | None:
        return self.numbers.get(name)


class RowFile:
    """Reads a run's metrics.jsonl again and again. It never raises at half-written or damaged
    lines: those are left out, and `num_damaged` counts them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS
        self._restart()

    def _restart(self) -> None:
        self._offset = 0
        self._file_id: tuple[int, int] | None = None
        self._rows: list[RoundRow] = []
        self.num_damaged = 0

    def read(self) -> Sequence[RoundRow]:
        """All rows up to now, in the order of their rounds."""
        try:
            size = file_size(self._path)
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                # A run that was resumed has cut its file back, perhaps by replacing it.
                if size < self._offset or self._file_id not in (None, id_of(status)):
                    self._restart()
                self._file_id = id_of(status)
                start = max(self._offset, size - MOST_BYTES)
                file.seek(start)
                data = file.read(size - start)
        except (OSError, Unreadable):
            return self._rows
        whole, newline, _ = data.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        begins_inside = start > self._offset
        is_first = start == 0
        self._offset = start + len(whole) + len(newline)
        for number, line in enumerate(lines):
            if not self._add(line) and number == 0 and not is_first:
                if begins_inside:
                    continue
                # The file was cut back and grew again since the last read.
                self._restart()
                return self.read()
        return self._rows

    def _add(self, line: bytes) -> bool:
        """Take a line. Returns whether it is a round."""
        try:
            row = row_of(parse_json(line, dict[str, Any], self._path))
        except Unreadable:
            row = None
        if row is None:
            self.num_damaged += 1
            return False
        # Rounds that were cut and done again.
        while self._rows and self._rows[-1].step >= row.step:
            self._rows.pop()
        self._rows.append(row)
        return True


def id_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def row_of(values: Mapping[str, Any]) -> RoundRow | None:
    """A line of metrics.jsonl; None if it is no round."""
    step = finite(values.get("step"))
    if step is None or step < 0:
        return None
    found = {name: finite(values.get(key)) for name, key in NUMBERS.items()}
    numbers = {name: value for name, value in found.items() if value is not None}
    return RoundRow(int(step), numbers, *(counts_of(values.get(key)) for key in HISTOGRAMS))


def finite(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Also false for a NaN, and for whole numbers that no float can hold.
    return float(value) if abs(value) <= sys.float_info.max else None


def counts_of(value: object) -> dict[int, int]:
    """A histogram; its entries that are no counts are left out."""
    if not isinstance(value, Mapping):
        return {}
    return {
        int(key): count
        for key, count in value.items()
        if isinstance(key, str)
        and key.isascii()
        and key.isdigit()
        and len(key) < 10
        and isinstance(count, int)
        and count >= 0
    }


@dataclass(frozen=True)
class NewestSample:
    """A prompt, a response and its score. origin: which version wrote it, in words."""

    prompt: str
    response: str
    score: float | None
    origin: str


class LastSample:
    """Reads the newest sample again when its file has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed: tuple[str, float, int] | None = None
        self._sample: NewestSample | None = None

    def read(self) -> NewestSample | None:
        """The sample; None if the run keeps none."""
        for name, response, score in SOURCES:
            path = self._folder / name
            try:
                status = os.stat(path)
            except OSError:
                continue
            changed = (name, status.st_mtime, status.st_size)
            if changed != self._changed:
                found = sample_in(last_row(path), response, score)
                self._changed, self._sample = changed, found or self._sample
            if self._sample is not None:
                return self._sample
        return None


def sample_in(row: Mapping[str, Any], response: str, score: str) -> NewestSample | None:
    prompt, text = row.get("prompt"), row.get(response)
    if not isinstance(prompt, str) or not isinstance(text, str):
        return None
    version = finite(row.get("version"))
    origin = "evaluation" if version is None else f"version {version:.0f}"
    return NewestSample(prompt, text, finite(row.get(score)), origin)


def last_row(path: Path) -> Mapping[str, Any]:
    """The last whole row of a JSONL file that is being written; {} if there is none."""
    try:
        size = file_size(path)
        with path.open("rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).split(b"\n")[:-1]
        return parse_json(lines[-1], dict[str, Any], path) if lines else {}
    except (OSError, Unreadable):
        return {}


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
    rows = sorted(read_rows(path), key=lambda row: int(row["version"]))
    for name, key in KEYS.items():
        if rows and finite(rows[-1].get(key)) is not None:
            found = [(int(row["version"]), finite(row.get(key))) for row in rows]
            known = [(version, value) for version, value in found if value is not None]
            return Scores(name, tuple(v for v, _ in known), tuple(value for _, value in known))
    return Scores()
