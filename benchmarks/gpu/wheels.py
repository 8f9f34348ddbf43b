"""Packages that a bare machine lacks, from a folder of wheels. Needs the standard library alone."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

from benchmarks.gpu.findings import Refused

# What torch and transformers do not bring, by the name of the module.
NEEDED = ("hydra", "omegaconf", "antlr4", "pydantic", "pydantic_core")


def unpack(wheels: str, folder: Path) -> list[str]:
    """Folders to put on the path of Python: none where nothing is missing. Raises Refused."""
    needed = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not needed:
        return []
    brought = set()
    for file in sorted(Path(wheels).glob("*.whl")) if wheels else []:
        # Pure ones, and one with a library for each version of Python, which have different names.
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(folder)
            brought |= {name.partition("/")[0] for name in wheel.namelist()}
    if absent := [name for name in needed if name not in brought]:
        raise Refused(
            f"no {', '.join(absent)} here and no wheel of it in GPU_CHECK_WHEELS={wheels}: run "
            "`make gpu-check-wheels` where packages can be fetched, and pass "
            "GPU_CHECK_WHEELS=build/gpu-wheels"
        )
    return [str(folder)]
