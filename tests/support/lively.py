"""Rewards of whole runs. Their workers import this module, so it imports next to nothing."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def lively(prompt: str, completion: str, **_: Any) -> float:
    """A reward under which samples hardly ever tie, so that every update changes the weights."""
    return float(zlib.crc32(f"{prompt}{completion}".encode()) % 97)


def lively_unless_asked(prompt: str, completion: str, *, file: str, **_: Any) -> float:
    """The same, and the misbehaviour that a file of the working folder names, once the function was
    called as often as the file demands."""
    path = Path(file)
    if path.exists():
        name, left = json.loads(path.read_text())
        if not left:
            from tests.support.misbehaving import FAILING

            return float(FAILING[name]())
        path.write_text(json.dumps([name, left - 1]))
    return lively(prompt, completion)


def drawing(prompt: str, completion: str, **_: Any) -> float:
    """The same, with draws from all global generators and traces in its process."""
    import os
    import random

    random.seed(len(completion))
    random.random()
    os.environ["MISBEHAVING"] = "1"
    os.chdir("/")
    return lively(prompt, completion)


def rare_bytes(
    prompt: str, completion: str, *, reference: str, hidden: Mapping[str, Any], finished: bool
) -> float:
    """Depends on all that a reward is given."""
    assert hidden["n"] == int(prompt.split()[1])
    return len(set(completion)) + len(reference) + float(finished)


def always(*_: object, **__: object) -> float:
    """A reward that no rule gives."""
    return 0.25
