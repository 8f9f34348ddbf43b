"""Options that have another name than in an earlier version.

Overrides and YAML files with an earlier name are accepted for one release, with a warning.
Overrides and configs that runs recorded are read under the present names.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlhf_lab.types.errors import UserError

KEYS = {
    "mode.at_bound": "mode.when_stale",
    "mode.ahead": "mode.extra_rounds",
    "run.replay": "run.replay_sampling",
    "run.pass_groups": "run.pass_rate_window",
    "run.pass_least": "run.min_pass_rate",
    "run.pass_most": "run.max_pass_rate",
    "run.most_repeats": "run.max_repeats",
    "algo.value_least": "algo.value_min",
    "algo.value_most": "algo.value_max",
}
GROUPS = {"budget@run": "run", "budget": "run"}
SERVER = {"vllm_server": "vllm"}
VALUES: dict[str, dict[str, str]] = {
    "mode": {"replay": "recorded"},
    "mode.name": {"replay": "recorded"},
    "mode.weights": {"newest": "latest", "newest_in_sequence": "latest_per_token"},
    "engine.stage": {"0": "2", "1": "2"},
    "generator": SERVER,
    "generator.name": SERVER,
}
# Options of a judge by an endpoint, at any depth below these nodes.
REMOVED_AT = ("reward.", "judge.")
REMOVED = ("backoff_s", "max_backoff_s", "group_retries")


def is_removed(key: str) -> bool:
    """Whether a key is of an option that has no successor: what runs recorded of it is left out."""
    return key.startswith(REMOVED_AT) and last_part(key) in REMOVED


class Option(NamedTuple):
    """An option of a group under its earlier name, which another option has now. key: of the group,
    which only this one of the two has."""

    group: str
    earlier: str
    key: str
    present: str


OPTIONS = (Option("algo", "mdpo", "tau", "kimi"),)
OVERRIDE = re.compile(r"([+~]*)([^=]+)(=.*)?", re.DOTALL)
WORD = re.compile(r"\w+")


def present_key(key: str) -> str:
    """A key or a group by its present name."""
    return KEYS.get(key, GROUPS.get(key, key))


def present_value(key: str, value: Any) -> Any:
    """A value of a key, or a text with several values, by its present name."""
    names = VALUES.get(key, {})
    if not names or not isinstance(value, str | int):
        return value
    return type(value)(WORD.sub(lambda found: names.get(found[0], found[0]), str(value)))


def present_override(text: str) -> str:
    """An override, `mode.ahead=2` or `+mode.weights=newest`, by its present names."""
    if not (found := OVERRIDE.fullmatch(text)):
        return text
    sign, key, rest = found.groups()
    return f"{sign}{present_key(key)}{present_value(key, rest) or ''}"


def present_options(texts: Sequence[str], has: Callable[[str, str], bool]) -> list[str]:
    """Overrides in which options of OPTIONS have their present names, where `has` a group's key."""
    found = list(texts)
    for group, earlier, key, present in OPTIONS:
        if has(group, key):
            old, new = f"{group}={earlier}", f"{group}={present}"
            found = [new if text == old else text for text in found]
    return found


def present_overrides(texts: Sequence[str]) -> list[str]:
    """Overrides that a person gave, by their present names, with a warning of earlier ones."""
    for text in texts:
        require_kept(text.lstrip("+~").partition("=")[0])
    plain = [warned(text, present_override(text)) for text in texts]
    keys = {text.lstrip("+").partition("=")[0] for text in plain}
    found = present_options(plain, lambda group, key: f"{group}.{key}" in keys)
    return [warned(earlier, present) for earlier, present in zip(plain, found, strict=True)]


def require_kept(key: str, where: str = "") -> None:
    """Refuse the key of a removed option. where: a file and a colon."""
    if is_removed(key):
        raise UserError(
            f"{where}{key} is no option: the client `openai` sets the pauses between requests; "
            f"take it out, and pass {key.rpartition('.')[0]}.retries for more requests"
        )


def warned(earlier: str, present: str, where: str = "") -> str:
    """The present text, with a warning if the earlier one is another."""
    if earlier != present:
        warn(f"{where}{earlier} is now {present}: the former name works for one release")
    return present


@functools.cache
def warn(text: str) -> None:
    """Print a warning, once a process."""
    sys.stderr.write(f"rlhf-lab: {text}\n")


def present_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A recorded config, nested or with dotted keys, by its present names. prefix: the node that it
    is composed at, with a dot."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found[name] = present_config(value, f"{key}.")
            continue
        if is_removed(key):
            continue
        if key in KEYS:
            name = name.removesuffix(last_part(key)) + last_part(KEYS[key])
        found[name] = present_value(key, value)
    return with_options(found, prefix)


def with_options(values: dict[str, Any], prefix: str) -> dict[str, Any]:
    """One level of a config, in which `name` and `GROUP.name` are those of OPTIONS."""
    for group, earlier, key, present in OPTIONS:
        dotted = "" if prefix == f"{group}." else f"{group}."
        is_here = prefix in ("", f"{group}.") and f"{dotted}{key}" in values
        if is_here and values.get(f"{dotted}name") == earlier:
            values[f"{dotted}name"] = present
    return values


def last_part(key: str) -> str:
    return key.rpartition(".")[2]
