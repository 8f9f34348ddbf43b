"""Packages that a bare machine lacks, from a folder of wheels. Needs the standard library alone."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

# What torch and transformers do not bring, by the name of the module.
NEEDED = ("hydra", "omegaconf", "antlr4", "pydantic", "pydantic_core")
# Of the machine itself: nothing is checked without them.
GIVEN = ("torch", "transformers", "numpy", "safetensors", "tokenizers", "yaml", "filelock", "rich")


class Missing(RuntimeError):
    """The machine lacks packages that no wheel brings."""


def unpack(wheels: str, folder: Path) -> list[str]:
    """Folders to put on the path of Python: none where nothing is missing. Raises Missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    lacking = [name for name in GIVEN if importlib.util.find_spec(name) is None]
    if lacking:
        raise Missing(f"this Python has no {', '.join(lacking)}: use the one that has torch")
    if not missing:
        return []
    files = sorted(Path(wheels).glob("*.whl")) if wheels else []
    absent = [name for name in missing if not any(brings(file, name) for file in files)]
    if absent:
        raise Missing(
            f"no {', '.join(absent)} here and no wheel of it in GPU_CHECK_WHEELS={wheels}: run "
            "`make gpu-check-wheels` where packages can be fetched, and pass "
            "GPU_CHECK_WHEELS=build/gpu-wheels"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        # Pure ones, and one with a library for each version of Python, which have different names.
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(folder)
    return [str(folder)]


def brings(file: Path, module: str) -> bool:
    """Whether a wheel holds this module."""
    with zipfile.ZipFile(file) as wheel:
        return any(name.startswith(f"{module}/") for name in wheel.namelist())
