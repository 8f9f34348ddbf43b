"""HTML from Python: everything that is not markup is escaped, names and numbers alike."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

VOID = frozenset({"br", "input", "meta"})
# Inside a script element only `<` could end it; the others keep the page safe to copy from.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class Markup(str):
    """Text that is HTML already."""


Child = str | Markup


def element(name: str, *children: Child, **attributes: str | bool | None) -> Markup:
    """An element. children: texts are escaped, Markup is not. attributes: `class_` and `for_` for
    `class` and `for`, `_` for `-`; True is an attribute without value, None and False none."""
    inner = "".join(shown(child) for child in children)
    opening = name + "".join(attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{opening}>" if name in VOID else f"<{opening}>{inner}</{name}>")


def shown(child: Child) -> str:
    return child if isinstance(child, Markup) else escape(child, quote=False)


def attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


def joined(parts: Iterable[Child]) -> Markup:
    """Several children, one after the other."""
    return Markup("".join(shown(part) for part in parts))


def data_block(identity: str, data: Mapping[str, Any]) -> Markup:
    """Data for scripts that nothing in it can break out of; NaN and infinity become null."""
    text = json.dumps(finite(data), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    safe = "".join(UNSAFE.get(character, character) for character in text)
    opening = f'<script type="application/json" id="{escape(identity)}">'
    return Markup(f"{opening}{safe}</script>")


def finite(value: Any) -> Any:
    """The same with null in place of what JSON has no number for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value
