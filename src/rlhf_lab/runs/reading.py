"""Readers of files that may be damaged, with bounds on size and depth.

Each reader returns a value of a given type, or raises Unreadable with the file, the place in it and
the reason. Commands print that in one line; tables make it a finding.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from rlhf_lab.types.errors import UserError

T = TypeVar("T")
MEBIBYTE = 2**20
# Far above the files of real runs: a config has 10 KiB, a manifest 20 KiB.
YAML_BYTES = 4 * MEBIBYTE
JSON_BYTES = 256 * MEBIBYTE
YAML_DEPTH = 64
# libyaml's, where PyYAML was built with it: ten times faster.
PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SHOWN = 60
# Where the last line of a log is looked for.
TAIL_BYTES = 65536
# Characters of another package's message.
REASON = 200
ADAPTERS: dict[Any, TypeAdapter[Any]] = {}
LARGEST = 2**1024


class Loader(PARSER):  # type: ignore[misc]
    """A YAML loader that refuses repeated keys of a mapping: PyYAML keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"the key {key.value} a second time, in line {line}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


class Unreadable(UserError):
    """A file has invalid contents. place: line, key or column, "" for the whole file."""

    def __init__(self, path: Path | str, reason: str, place: str = "") -> None:
        self.path = Path(path)
        self.reason = reason
        self.place = place
        super().__init__(f"{path}{f', {place}' if place else ''}: {reason}")


def content(path: Path, limit: int = JSON_BYTES) -> bytes:
    """The bytes of a regular file of at most `limit` bytes."""
    size = file_size(path)
    if size > limit:
        raise Unreadable(path, f"it has {size} bytes, more than {limit}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def file_size(path: Path) -> int:
    """The bytes that a regular file has. A pipe or a device, which would never end, is refused."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(path, "it is no regular file")
    return status.st_size


def unreadable(path: Path | str, error: OSError | ValueError) -> Unreadable:
    """The error of a file that the system cannot read."""
    if isinstance(error, FileNotFoundError):
        return Unreadable(path, "it is missing")
    return Unreadable(path, f"it cannot be read ({getattr(error, 'strerror', None) or error})")


def read_json(path: Path, kind: type[T], limit: int = JSON_BYTES) -> T:
    """The value of a JSON file."""
    return parse_json(content(path, limit), kind, path)


def parse_json(data: bytes | str, kind: type[T], path: Path | str, place: str = "") -> T:
    """The value of JSON text, which is of `kind`: a type, a dataclass, a TypedDict or a union.

    Numbers are not converted from text. The parser bounds the depth and refuses lone surrogates.
    path and place are for the message.
    """
    try:
        return adapter_of(kind).validate_json(data, strict=True)
    except ValidationError as error:
        raise Unreadable(path, *reason_and_place(error, place)) from error


def checked(value: Any, kind: type[T], path: Path | str, place: str = "") -> T:
    """A value that was read in another way (YAML, a table's cell), which is of `kind`."""
    try:
        return adapter_of(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise Unreadable(path, *reason_and_place(error, place)) from error
    except RecursionError as error:
        raise Unreadable(path, "it holds itself, or is nested too deeply", place) from error


@contextmanager
def parsing(path: Path | str, what: str, place: str = "") -> Iterator[None]:
    """For calls of another package's parser and nothing else: whatever exception damaged bytes
    cause becomes Unreadable. what: the expected format."""
    try:
        yield
    except UserError:
        raise
    except BaseException as error:
        if not is_parsers(error):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        what = f"it is no {what} that can be read ({reason[:REASON]})"
        raise Unreadable(path, what, place) from error


def is_parsers(error: BaseException) -> bool:
    """Whether a parser may raise this at damaged bytes. Parsers document no types: LookupError,
    struct.error and MemoryError occur, and a panic in Rust is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping of a YAML file with plain values and no anchors: a few anchors can expand to more
    values than memory holds."""
    data = content(path, YAML_BYTES)
    try:
        refuse_unbounded(data)
        found = yaml.load(data, Loader)
        refuse_other_than_plain(found)
    # Dates and numbers that cannot be are errors of their constructors.
    except (yaml.YAMLError, ValueError, TypeError, LookupError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Unreadable(path, f"it is no YAML of plain values ({reason[:200]})") from error
    return checked(found, dict[str, Any], path)


def refuse_unbounded(data: bytes) -> None:
    """Raise YAMLError at an alias, or where values are nested too deeply."""
    depth = 0
    for event in yaml.parse(data, PARSER):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError(
                f"an alias in line {event.start_mark.line + 1 if event.start_mark else '?'}"
            )
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > YAML_DEPTH:
            raise yaml.YAMLError(f"more than {YAML_DEPTH} levels")


def refuse_other_than_plain(value: Any) -> None:
    """Raise ValueError at dates, sets, bytes, keys that are no texts, and numbers that JSON could
    not hold either."""
    if isinstance(value, dict):
        if others := [key for key in value if not isinstance(key, str)]:
            raise ValueError(f"a key that is no text: {others[0]!r}")
        for inner in value.values():
            refuse_other_than_plain(inner)
    elif isinstance(value, list):
        for inner in value:
            refuse_other_than_plain(inner)
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("a number of more than 1024 bits")
    elif not isinstance(value, str | int | float | None):
        raise ValueError(f"a {type(value).__name__}")


def adapter_of(kind: type[T]) -> TypeAdapter[T]:
    found = ADAPTERS.get(kind)
    if found is None:
        found = ADAPTERS[kind] = TypeAdapter(kind)
    return found


def reason_and_place(error: ValidationError, place: str) -> tuple[str, str]:
    """The first of pydantic's errors, and its place."""
    first = error.errors(include_url=False, include_context=False)[0]
    inside = ".".join(str(part) for part in first["loc"])
    where = " ".join(part for part in (place, inside and f"key {inside}") if part)
    if first["type"] == "json_invalid":
        return f"it is not JSON ({first['msg'].removeprefix('Invalid JSON: ')})", where
    if first["type"] == "missing":
        return "it is missing", where
    if first["type"] == "value_error":
        # Of a check of ours, which names the value.
        return first["msg"].removeprefix("Value error, "), where
    shown = repr(first["input"])
    return f"{first['msg']}, not {shown[:SHOWN]}", where


def last_line(log: Path) -> str:
    """The last line of a log that is not empty; "" if there is none."""
    try:
        start = max(0, file_size(log) - TAIL_BYTES)
        with log.open("rb") as file:
            file.seek(start)
            text = file.read().decode("utf-8", errors="replace")
    except (OSError, Unreadable):
        return ""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
