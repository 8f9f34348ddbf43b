"""What programs and accidents do to files, chosen by a random generator."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

Damage = Callable[[Path, random.Random], str]
# What stands where something else should, in JSON and YAML.
OTHERS: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 10**30, -(10**30), 10**400, 1e308, float("nan"), float("inf"),
    "", "text", "a\nb", "nan", "\x00", "ü\u2028", "../..", "9" * 5000, [], {}, [1, None],
    {"a": {"b": 1}}, {"": 0}, [[]], {"_type": "table"}, "2026-99-99", "x" * 100_000,
)  # fmt: skip
GARBAGE = (
    b"", b"\x00" * 64, b"\xff\xfe\x00", b"{", b"[" * 100_000, b'{"a":' * 100_000, b"null", b"[]",
    b"3", b'"text"', b"{}\n[]\n", b"&a [*a]", b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    b'{"a": \xff}', b'{"a": "\\ud800"}', b"\n\n\n", b"NaN", b"- " * 50_000, b"!!python/name:os",
    b"a: 2026-01-01\n2: !!set {1, 2}\n", b"a: !!binary aGk=\n? 2026-01-01\n: b\n",
)  # fmt: skip


def damage(folder: Path, within: Sequence[str], rng: random.Random) -> str:
    """Damage one or two things in a folder, or in some parts of it; what was done."""
    return "; ".join(damage_once(folder, within, rng) for _ in range(rng.choice((1, 1, 1, 2))))


def damage_once(folder: Path, within: Sequence[str], rng: random.Random) -> str:
    every = [path for path in sorted(folder.rglob("*")) if is_within(path, folder, within)]
    files = [path for path in every if path.is_file()]
    folders = [path for path in every if path.is_dir()]
    if folders and (not files or rng.random() < 0.15):
        path = rng.choice(folders)
        how = rng.choice(OF_FOLDERS)
    elif files:
        # What lies deep is many, and is read by few.
        top = min(len(path.parts) for path in files)
        upper = [path for path in files if len(path.parts) == top]
        path = rng.choice(upper if rng.random() < 0.6 else files)
        how = rng.choice(OF_TEXT if is_text(path) else OF_BYTES)
    else:
        return "nothing left to damage"
    return f"{path.relative_to(folder)}: {how(path, rng)}"


def is_within(path: Path, folder: Path, within: Sequence[str]) -> bool:
    return not within or any(path.is_relative_to(folder / name) for name in within)


def is_text(path: Path) -> bool:
    return path.suffix in (".json", ".jsonl", ".yaml", ".csv")


def truncate(path: Path, rng: random.Random) -> str:
    length = rng.randrange(path.stat().st_size + 1)
    os.truncate(path, length)
    return f"cut to {length} bytes"


def flip(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 8)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return "bits flipped"


def insert(path: Path, rng: random.Random) -> str:
    data, garbage = path.read_bytes(), rng.choice(GARBAGE)
    at = rng.choice((0, len(data), rng.randrange(len(data) + 1)))
    path.write_bytes(data[:at] + garbage + data[at:])
    return f"{garbage[:12]!r} at {at}"


def replace(path: Path, rng: random.Random) -> str:
    garbage = rng.choice(GARBAGE)
    path.write_bytes(garbage)
    return f"replaced by {garbage[:12]!r}"


def remove_line(path: Path, rng: random.Random) -> str:
    lines = path.read_bytes().splitlines(keepends=True)
    if lines:
        del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))
    return "a line removed"


def repeat_line(path: Path, rng: random.Random) -> str:
    lines = path.read_bytes().splitlines(keepends=True)
    if lines:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    path.write_bytes(b"".join(lines))
    return "a line repeated"


def delete(path: Path, _: random.Random) -> str:
    remove(path)
    return "deleted"


def as_folder(path: Path, rng: random.Random) -> str:
    remove(path)
    path.mkdir()
    if rng.random() < 0.5:
        (path / "file").write_text("text")
    return "a folder in its place"


def as_file(path: Path, rng: random.Random) -> str:
    remove(path)
    path.write_bytes(rng.choice(GARBAGE))
    return "a file in its place"


def as_link(path: Path, rng: random.Random) -> str:
    remove(path)
    target = rng.choice(("nowhere", path.name, ".", "/dev/null", "/dev/zero", "manifest.json"))
    path.symlink_to(target)
    return f"a link to {target} in its place"


def as_pipe(path: Path, _: random.Random) -> str:
    remove(path)
    os.mkfifo(path)
    return "a pipe in its place"


def beside(path: Path, rng: random.Random) -> str:
    """What a person or another program leaves lying about."""
    name = rng.choice((f"{path.name}.bak", "~", ".making-x", ".manifest-x", "x.draft", "9.jsonl"))
    other = path.with_name(name)
    if path.is_dir() and rng.random() < 0.5:
        # Pipes, which an earlier damage may have put there, are left out.
        with contextlib.suppress(shutil.Error):
            shutil.copytree(path, other, symlinks=True, dirs_exist_ok=True)
        return f"a copy of it named {name}"
    if rng.random() < 0.5:
        other.mkdir(exist_ok=True)
        return f"a folder {name} beside it"
    other.write_bytes(rng.choice(GARBAGE))
    return f"a file {name} beside it"


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def mutate(path: Path, rng: random.Random) -> str:
    """Another value, or none, at a random place of a JSON or YAML value or of a JSONL row."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".yaml":
            value, done = changed(yaml.safe_load(text), rng)
            path.write_text(yaml.safe_dump(value), encoding="utf-8")
        elif path.suffix == ".json":
            value, done = changed(json.loads(text), rng)
            path.write_text(dumped(value), encoding="utf-8")
        else:
            done = mutate_row(path, text.splitlines(), rng)
    except (ValueError, yaml.YAMLError, RecursionError):
        return replace(path, rng)
    return done


def mutate_row(path: Path, lines: list[str], rng: random.Random) -> str:
    """The same for a row of a file; a row of CSV becomes a row of other cells."""
    if not lines:
        return replace(path, rng)
    at = rng.randrange(len(lines))
    if path.suffix == ".csv":
        cells = lines[at].split(",")
        cells[rng.randrange(len(cells))] = str(rng.choice(OTHERS[:-1]))
        lines[at], done = ",".join(cells), "another cell"
    else:
        value, done = changed(json.loads(lines[at]), rng)
        lines[at] = dumped(value)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return f"line {at + 1}: {done}"


def dumped(value: Any) -> str:
    """JSON, with whole numbers of any length."""
    # Only json's writer has no limit of its own, unless a limit of the interpreter is met.
    return json.dumps(value).replace('"9' + "9" * 4999 + '"', "9" * 5000)


def changed(value: Any, rng: random.Random) -> tuple[Any, str]:
    """A value in which one thing is another or missing, and where."""
    spots = [spot for spot in places(value, ()) if spot]
    if not spots or rng.random() < 0.03:
        other = rng.choice(OTHERS)
        return other, f"{shown(other)} in place of all"
    *way, last = rng.choice(spots)
    node = value
    for part in way:
        node = node[part]
    name = ".".join(map(str, [*way, last]))
    if rng.random() < 0.2:
        del node[last]
        return value, f"{name} deleted"
    other = nested(rng) if rng.random() < 0.1 else rng.choice(OTHERS)
    node[last] = other
    return value, f"{name}={shown(other)}"


def nested(rng: random.Random) -> Any:
    """A value of many levels; few enough to be written."""
    value: Any = 1
    for _ in range(rng.choice((30, 150, 500))):
        value = rng.choice(([value], {"a": value}))
    return value


def places(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside, of long lists to a few."""
    yield way
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*way, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:8]):
            yield from places(inner, (*way, number))


def shown(value: Any) -> str:
    try:
        return repr(value)[:40]
    except (ValueError, RecursionError):
        return "a value too long to show"


OF_BYTES: tuple[Damage, ...] = (
    truncate, truncate, flip, flip, insert, replace, delete, as_folder, as_link, as_pipe, beside,
)  # fmt: skip
OF_TEXT: tuple[Damage, ...] = (*OF_BYTES, remove_line, repeat_line, *(mutate,) * 20)
OF_FOLDERS: tuple[Damage, ...] = (delete, as_file, as_link, as_pipe, beside)
