"""Copies of arguments, so that code which changes its own changes nobody else's, and is found."""

from __future__ import annotations

from typing import Any

PLAIN = (str, int, float, bool, type(None), bytes)


def copied(value: Any) -> Any:
    """The value with containers of its own; what else is in it is the same object."""
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
    """Whether a copy is another one than it was when it was made."""
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
