"""Tensors in safetensors files, and the files of a policy's versions.

A version is one file of all weights or, where adapters are trained, a folder of these alone in the
format of peft.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from rlhf_lab.runs.disk import atomic_file, atomic_write, remove_drafts, save_file
from rlhf_lab.runs.reading import Unreadable, file_size, read_json
from rlhf_lab.types.data import Adapters, Weights

WEIGHTS = "weights"
SUFFIX = ".safetensors"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
VERSION = re.compile(r"([0-9]{6,15})")


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
    return Unreadable(path, f"it is damaged ({error})")


def write_version(weights: Weights, stem: Path) -> list[Path]:
    """Write a version, which appears whole: the file `stem`.safetensors, or the folder `stem` of
    adapters. Returns its files."""
    whole = stem.with_name(stem.name + SUFFIX)
    if weights.adapters is None:
        with atomic_file(whole) as draft:
            save_file(weights.state, draft)
        return [whole]
    write_adapters(weights.adapters, stem)
    # Of a run that began when versions of adapters were merged.
    whole.unlink(missing_ok=True)
    return [stem / ADAPTER_CONFIG, stem / ADAPTER_WEIGHTS]


def write_adapters(adapters: Adapters, folder: Path) -> None:
    """Write adapters as peft does. Their weights, by which a version is found, come last."""
    folder.mkdir(exist_ok=True)
    remove_drafts(folder)
    config = json.dumps(adapters.config, indent=2, sort_keys=True)
    atomic_write(folder / ADAPTER_CONFIG, f"{config}\n")
    with atomic_file(folder / ADAPTER_WEIGHTS) as draft:
        save_file(adapters.state, draft)


def read_version(version: int, path: Path) -> Weights:
    """A version as `version_files` found it. Raises Unreadable."""
    tensors = read_tensors(path)
    if path.name != ADAPTER_WEIGHTS:
        return Weights(version, tensors)
    config = read_json(path.with_name(ADAPTER_CONFIG), dict[str, Any])
    return Weights(version, {}, Adapters(config, tensors))


def version_files(folder: Path, name: re.Pattern[str]) -> dict[int, Path]:
    """The files of tensors of the versions in a folder by number, oldest first. name: of a version,
    without a suffix, with its number as a group; what has another name is skipped."""
    whole = {path.stem: path for path in folder.glob(f"*{SUFFIX}")}
    adapters = {path.parent.name: path for path in folder.glob(f"*/{ADAPTER_WEIGHTS}")}
    found = [(name.fullmatch(stem), path) for stem, path in (whole | adapters).items()]
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def saved_versions(run: Path) -> dict[int, Path]:
    return version_files(run / WEIGHTS, VERSION)
