"""Copies of arguments, so that what foreign code changes in them is harmless."""

from __future__ import annotations

from typing import Any


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
