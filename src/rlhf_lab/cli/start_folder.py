"""The folder that a run was started in, for the settings of it that are paths relative to that."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.cli.arguments import is_option, recorded_overrides
from rlhf_lab.runs.folder import manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.sweeps.override_text import quoted

PATH_KEYS = (
    *("path", "paths", "cache", "dir", "root", "schedule", "weights_folder", "log", "parent"),
)


def enter_start_folder(run: Path, arguments: Sequence[str]) -> list[str]:
    """Change to the folder in which a run was started, if settings of it name files there that are
    not here, and print so. Returns the command's arguments, the run first, whose paths stay those
    of the present folder."""
    start = read_manifest(manifest_path(run)).get("working_folder", "")
    here = Path.cwd()
    only_there = [
        text
        for text in recorded_overrides(run)
        if start
        and not text.startswith("output.")  # a run finds its products by itself
        and names_file(text, Path(start))
        and not names_file(text, here)
    ]
    if not only_there:
        return list(arguments)
    sys.stderr.write(f"in {start}, where the run was started with {only_there[0]}\n")
    os.chdir(start)
    folders = [text for text in arguments if not is_option(text)]
    changes = [absolute(text, here) for text in arguments if is_option(text)]
    if not any(text.startswith(("output.dir=", "output.root=")) for text in changes):
        changes.append(f"output.root={quoted(here / 'runs')}")
    return [*(str(here / text) for text in folders), *changes]


def path_in(override: str) -> tuple[str, str]:
    """The key and the relative path of an override; "" where it has none."""
    key, _, value = override.partition("=")
    value = value.strip("'\"")
    is_path = key.rpartition(".")[2] in PATH_KEYS and "." in key
    return key, value if is_path and value and not os.path.isabs(value) else ""


def names_file(override: str, folder: Path) -> bool:
    """Whether an override names a file or a folder, or a module of Python, by its relative path."""
    _, path = path_in(override)
    module = folder / f"{path.partition('.')[0]}.py"
    return bool(path) and ((folder / path).exists() or module.is_file())


def absolute(override: str, folder: Path) -> str:
    """An override with the path that its relative one means in a folder."""
    key, path = path_in(override)
    is_module = path and not (folder / path).exists() and not key.startswith("output.")
    return override if not path or is_module else f"{key}={quoted(folder / path)}"
