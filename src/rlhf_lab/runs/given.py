"""Functions and rows that a caller of `rlhf_lab.train` passed as objects, kept as files.

A function that a process can import is known by its name. Another one, of a notebook or a script,
is pickled with what it refers to, and is an attribute of this module: `given.NAME_DIGEST`. So a
config names it as it names any function, and every process of the run finds it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rlhf_lab.runs.disk import atomic_file
from rlhf_lab.types.errors import UserError

FOLDER = Path(".cache/rlhf_lab/given")


def name_of_function(function: Callable[..., Any]) -> str:
    """The dotted name by which every process of a run finds the function, from the same working
    folder."""
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", type(function).__name__)
    if module != "__main__" and name.isidentifier():
        found = getattr(importlib.import_module(module), name, None) if module else None
        if found is function:
            return f"{module}.{name}"
    import cloudpickle

    content = cloudpickle.dumps(function)
    label = name.rpartition(".")[2].strip("<>")
    path = keep(content, f"{label}_", ".pkl")
    return f"{__name__}.{path.stem}"


def path_of_rows(rows: Iterable[Mapping[str, Any]]) -> Path:
    """A JSONL file of these rows: a list of dictionaries, or a datasets.Dataset."""
    lines = []
    for number, row in enumerate(rows):
        try:
            lines.append(json.dumps(dict(row), ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise UserError(
                f"row {number} of data has no form in JSON ({error}): pass dictionaries of text, "
                "numbers, lists and dictionaries"
            ) from error
    if not lines:
        raise UserError("data has no rows: pass a list of dictionaries, or a datasets.Dataset")
    return keep(("\n".join(lines) + "\n").encode(), "rows_", ".jsonl")


def keep(content: bytes, prefix: str, suffix: str) -> Path:
    """The file of this content in FOLDER, named by its digest. The path is relative, since rows are
    called by it, and the randomness of a run by its rows."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    path = FOLDER / f"{prefix}{digest}{suffix}"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as draft:
            draft.write_bytes(content)
    return path


def __getattr__(name: str) -> Callable[..., Any]:
    import cloudpickle

    path = FOLDER / f"{name}.pkl"
    if not path.is_file():
        raise AttributeError(
            f"{path.absolute()} is missing: pass the function to rlhf_lab.train or resume again, "
            "from the working folder of the run"
        )
    function: Callable[..., Any] = cloudpickle.loads(path.read_bytes())
    return function
