"""Copies of arguments, by which changes that foreign code makes are found and harmless."""

from __future__ import annotations

from typing import Any

PLAIN = (str, int, float, bool, type(None), bytes)


def copied(value: Any) -> Any:
    """The value with copies of its containers, which hold the same other objects."""
    kind = type(value)
    if kind is dict:
        return {key: copied(inner) for key, inner in value.items()}
    if kind is list:
        return [copied(inner) for inner in value]
    if kind is tuple:
        return tuple([copied(inner) for inner in value])
    if kind in (set, bytearray):
        return kind(value)
    return value


def changed(value: Any, copy: Any) -> bool:
    """Whether a copy differs from the value that it was made of."""
    if value is copy:
        return False
    kind = type(value)
    if kind is not type(copy):
        return True
    if kind is dict:
        return list(value) != list(copy) or any(map(changed, value.values(), copy.values()))
    if kind in (list, tuple):
        return len(value) != len(copy) or any(map(changed, value, copy))
    return kind not in (set, bytearray, *PLAIN) or bool(value != copy)
