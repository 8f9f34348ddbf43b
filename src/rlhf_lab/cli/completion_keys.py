"""The keys of the config for completion, remembered: to list them takes longer than a Tab may."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rlhf_lab

BOOLEANS = ("true", "false")


@dataclass(frozen=True)
class KeyChoices:
    """A key, the option of its group that has it ("": every one), and its values where they are a
    choice."""

    name: str
    option: str
    values: tuple[str, ...]


def known_keys() -> list[KeyChoices]:
    """Every key, from the user's cache where that is of these sources."""
    path = cache_file()
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        rows = list(rows_of_schema())
        # A home that cannot be written to only makes the next Tab slower.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(rows), encoding="utf-8")
            draft.replace(path)
    return [KeyChoices(name, option, tuple(values)) for name, option, values in rows]


def cache_file() -> Path:
    """Named after the sizes and times of the sources, which a new version or an edit changes."""
    package = Path(rlhf_lab.__file__).parent
    state = [
        (str(path), found.st_size, found.st_mtime_ns)
        for path in sorted(package.rglob("*.py"))
        for found in [path.stat()]
    ]
    digest = hashlib.sha256(repr(state).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "rlhf_lab" / f"keys-{digest}.json"


def rows_of_schema() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    from rlhf_lab.experiment import keys

    for key in keys.all_keys():
        values: tuple[str, ...] = ()
        if key.kind == "choice":
            values = tuple(key.allowed.split(", "))
        elif key.kind == "bool":
            values = BOOLEANS
        yield key.name, key.option, values
        for mount, group in keys.MOUNTS.items():
            if key.group == group:
                yield mount + key.name.removeprefix(group), key.option, values
