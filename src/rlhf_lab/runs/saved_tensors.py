"""Tensors in safetensors files, and the files of a run's weight versions."""

from __future__ import annotations

import re
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from rlhf_lab.runs.reading import Unreadable, file_size

WEIGHTS = "weights"
VERSION = re.compile(r"([0-9]{6,15})\.safetensors")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises Unreadable if it is missing, cut short, or none."""
    file_size(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise no_tensors(path, error) from error


def check_tensors(path: Path) -> None:
    """Raise Unreadable if a file is cut short or no safetensors file; reads its header alone."""
    file_size(path)
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise no_tensors(path, error) from error


def no_tensors(path: Path, error: Exception) -> Unreadable:
    """The refusal of a damaged file."""
    return Unreadable(path, f"it is damaged ({error})")


def saved_versions(run: Path) -> dict[int, Path]:
    """The files of a run's versions by number, oldest first; files of other names are skipped."""
    found = [(VERSION.fullmatch(path.name), path) for path in (run / WEIGHTS).glob("*.safetensors")]
    numbered = {int(match[1]): path for match, path in found if match}
    return dict(sorted(numbered.items()))
