"""The devices and types of numbers that a manifest records: what `auto` stood for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def precision_in(manifest: Mapping[str, Any]) -> str:
    """Devices and types of numbers that a run was last started with, in a few words; "" if they are
    unknown. Sizes of passes decide no more than the order of sums, and are left out."""
    parts = manifest.get("precision")
    named = parts.items() if isinstance(parts, Mapping) else ()
    return ", ".join(precision_text(name, part) for name, part in named if part)


def precision_text(name: str, part: Mapping[str, Any]) -> str:
    tf32 = " with tf32" if part.get("tf32") else ""
    return f"{name} {part.get('dtype')} on {part.get('device')}{tf32}"
