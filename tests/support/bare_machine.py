"""A Python environment with torch, transformers and what these need, and nothing else of ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

GIVEN = ("torch", "transformers", "numpy", "pandas", "peft", "accelerate")
# Later ones of huggingface_hub need it, and earlier ones, of bare machines, do not.
ABSENT = {"pydantic", "pydantic-core", "annotated-types"}


def needed(names: Iterable[str], absent: set[str]) -> dict[str, metadata.Distribution]:
    """Distributions of these names and of all that they require, by name."""
    found: dict[str, metadata.Distribution] = {}
    todo = [str(name) for name in names]
    while todo:
        name = str(canonicalize_name(todo.pop()))
        if name in found or name in absent:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for text in found[name].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return found


def files_of(distribution: metadata.Distribution) -> dict[str, Path]:
    """The top-level files and folders of a distribution."""
    tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
    return {top: Path(str(distribution.locate_file(top))) for top in tops - {"__pycache__"}}


def bare_python(folder: Path) -> Path:
    """The Python of a new environment that holds GIVEN alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for distribution in needed(GIVEN, ABSENT).values():
        link(distribution, site)
    return folder / "bin" / "python"


def link(distribution: metadata.Distribution, site: Path) -> None:
    """Put a distribution into an environment."""
    for name, path in files_of(distribution).items():
        if path.exists() and not (site / name).exists():
            (site / name).symlink_to(path)
