"""The newest sample that a run keeps: of its last round, or else of its evaluation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.runs.live.rows import finite
from rlhf_lab.runs.reading import MEBIBYTE, Unreadable, file_size, parse_json

# Enough for a line, whose texts are bounded by the model's context.
TAIL_BYTES = MEBIBYTE
# File, key of the response, key of its score.
SOURCES = (("rollouts.jsonl", "response", "reward"), ("samples.jsonl", "sample", "gold"))


@dataclass(frozen=True)
class Sample:
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
        self._sample: Sample | None = None

    def read(self) -> Sample | None:
        """The sample; None if the run keeps none."""
        for name, response, score in SOURCES:
            path = self._folder / name
            try:
                status = os.stat(path)
            except OSError:
                continue
            changed = (name, status.st_mtime, status.st_size)
            if changed != self._changed:
                found = sample_in(last_line(path), response, score)
                self._changed, self._sample = changed, found or self._sample
            if self._sample is not None:
                return self._sample
        return None


def sample_in(row: Mapping[str, Any], response: str, score: str) -> Sample | None:
    """A row as a sample; None if it is none."""
    prompt, text = row.get("prompt"), row.get(response)
    if not isinstance(prompt, str) or not isinstance(text, str):
        return None
    version = finite(row.get("version"))
    origin = "evaluation" if version is None else f"version {version:.0f}"
    return Sample(prompt, text, finite(row.get(score)), origin)


def last_line(path: Path) -> Mapping[str, Any]:
    """The last whole row of a JSONL file that is being written; {} if there is none."""
    try:
        size = file_size(path)
        with path.open("rb") as file:
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).split(b"\n")[:-1]
        return parse_json(lines[-1], dict[str, Any], path) if lines else {}
    except (OSError, Unreadable):
        return {}
