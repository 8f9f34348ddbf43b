"""Tensors in files, and the versions of a run's weights that are kept in them."""

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
    """Read the head of a file, which tells whether it is cut short. Raises Unreadable."""
    file_size(path)
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        raise no_tensors(path, error) from error


def no_tensors(path: Path, error: Exception) -> Unreadable:
    return Unreadable(path, f"it is damaged ({error})")


def kept_versions(run: Path) -> dict[int, Path]:
    """The files of a run's versions by number, oldest first. Files of other names are nobody's."""
    found = [(VERSION.fullmatch(path.name), path) for path in (run / WEIGHTS).glob("*.safetensors")]
    numbered = {int(match[1]): path for match, path in found if match}
    return dict(sorted(numbered.items()))
