"""Settings with other values, from arguments such as run.passes=1,2 and mode=async."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from rlhf_lab.experiment.planning.settings import Settings
from rlhf_lab.types.errors import UserError

KEYS = {
    "run.updates": "updates",
    "run.groups_per_update": "groups_per_update",
    "run.updates_per_round": "updates_per_round",
    "run.passes": "passes",
    "run.group_size": "group_size",
    "mode.max_staleness": "max_staleness",
    "mode.num_generators": "num_generators",
    "generator.chunk_groups": "chunk_groups",
}
MODES = {
    "sync": {"max_staleness": 0, "num_generators": 0},
    "lagged": {"max_staleness": 1, "num_generators": 0},
    "async": {"max_staleness": 1, "num_generators": 1},
}


def grid(arguments: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Every combination of comma-separated values, with a label; nothing for no arguments."""
    values: dict[str, list[str]] = {}
    for argument in arguments:
        key, equals, given = argument.partition("=")
        if not equals or key not in (*KEYS, "mode"):
            raise UserError(f"{argument}: pass KEY=VALUE with KEY one of {', '.join(KEYS)}, mode")
        values[key] = given.split(",")
    if values:
        for combination in product(*values.values()):
            change = dict(zip(values, combination, strict=True))
            yield " ".join(f"{key}={value}" for key, value in change.items()), change


def changed(own: Settings, change: Mapping[str, str]) -> Settings:
    """A run's settings with other values; mode=... gives those of the mode's own config file."""
    numbers = {KEYS[key]: integer(key, text) for key, text in change.items() if key != "mode"}
    if numbers.get("num_generators") == 0:
        raise UserError("mode.num_generators=0: choose 1 or more, or pass mode=sync or mode=lagged")
    given: dict[str, Any] = asdict(own) | numbers
    if "mode" in change:
        given |= of_mode(change["mode"], numbers)
    return Settings(**given)


def of_mode(mode: str, numbers: Mapping[str, int]) -> dict[str, int]:
    """Staleness and generators of a mode, where other numbers are given too."""
    if mode not in MODES:
        raise UserError(f"mode={mode} cannot be planned: choose {', '.join(MODES)}")
    chosen = MODES[mode] | {key: numbers[key] for key in MODES[mode] if key in numbers}
    if mode == "sync" and chosen["max_staleness"]:
        raise UserError(
            f"mode.max_staleness={chosen['max_staleness']} with mode=sync: sync means 0; "
            "pass mode=lagged or mode=async"
        )
    if mode != "async":
        if chosen["num_generators"] > 1:
            raise UserError(
                f"mode.num_generators={chosen['num_generators']} with mode={mode}: the trainer "
                "generates by itself; pass mode=async"
            )
        chosen["num_generators"] = 0
    return chosen


def integer(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise UserError(f"{key}={text}: pass a whole number, or several with commas") from error
