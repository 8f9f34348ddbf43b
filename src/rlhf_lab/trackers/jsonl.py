"""The record of a run: one JSON object per line. All other trackers mirror it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.types import Metrics


class JsonlTracker:
    """Appends `{"step": step, **metrics}` per row, written out at once so that a kill loses none.

    A NaN or infinite number is a ValueError that names it, and its row is not written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def log(self, metrics: Metrics, step: int) -> None:
        for name, value in leaves(metrics):
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"metric {name} of step {step} is {value}, not a finite number")
        row = json.dumps({"step": step} | metrics, allow_nan=False)
        self._file.write(row + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested mappings and sequences, with the path to it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{name}[{place}]")
    else:
        yield name, value
