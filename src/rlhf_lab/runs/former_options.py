"""Options whose name another one has now. A key that the former one alone has decides between
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# By group and former name: the key that the former option alone has, and its present name.
# `algo=mdpo` was Kimi's form.
OPTIONS = {("algo", "mdpo"): ("tau", "kimi")}


def present_options(texts: Sequence[str], has: Callable[[str, str], bool]) -> list[str]:
    """Overrides in which an option of OPTIONS has its present name, where `has` a group's key."""
    found = list(texts)
    for (group, former), (key, present) in OPTIONS.items():
        if has(group, key):
            change = {f"{group}={former}": f"{group}={present}"}
            found = [change.get(text, text) for text in found]
    return found


def with_options(values: Mapping[str, Any], prefix: str, is_former: bool) -> dict[str, Any]:
    """A config, nested or with dotted keys, in which the nodes of OPTIONS have their present names;
    their former ones if they do not have those now (is_former)."""
    found = dict(values)
    for (group, former), (key, present) in OPTIONS.items():
        old, new = (former, present) if is_former else (present, former)
        node = found.get(group)
        if isinstance(node, Mapping) and node.get("name") == old and key in node:
            found[group] = {**node, "name": new}
        for dotted in (f"{group}.", "") if prefix in ("", f"{group}.") else ():
            name = f"{dotted}name"
            if (dotted or prefix) and found.get(name) == old and f"{dotted}{key}" in found:
                found[name] = new
    return found
