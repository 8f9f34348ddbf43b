"""The record of a run: one JSON object per line. All other trackers mirror it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.types.data import Metrics


class JsonlFile:
    """Appends rows, each written out at once: a kill loses none, a full disk leaves no half."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab", buffering=0)

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Write rows at once. An OSError names the file, which then ends with the row before."""
        text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        data = memoryview(text.encode())
        start = self._file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._file.truncate(start)
            error.add_note(f"{self._path} ends with the row before; free space and resume")
            raise

    def close(self) -> None:
        self._file.close()


class JsonlTracker:
    """Appends `{"step": step, **metrics}` per row.

    A NaN or infinite number is a ValueError that names it, and its row is not written.
    """

    def __init__(self, path: Path) -> None:
        self._file = JsonlFile(path)

    def log(self, metrics: Metrics, step: int) -> None:
        for name, value in leaves(metrics):
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"metric {name} of step {step} is {value}, not a finite number")
        self._file.append({"step": step} | metrics)

    def close(self) -> None:
        self._file.close()


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested mappings and sequences, with the path to it."""
    # Nearly every value, and far cheaper to find than that it is no Mapping.
    if isinstance(value, float | int | str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{name}[{index}]")
    else:
        yield name, value
