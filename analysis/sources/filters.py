"""Choose runs of any source by their config: `exp_name=ppo-sync`, `seed=1`, `tag=pr-424`."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from rlhf_lab.runs.renames import present_value
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.conditions import place_of
from rlhf_lab_analysis.sources.record import Record, look_up

TAG = "tag"
# By key the values of which a run has one. The key `tag` is of the run's tags.
Filters: TypeAlias = Mapping[str, Sequence[Any]]
ALL: Filters = {}


def parse_filters(texts: Sequence[str]) -> Filters:
    """KEY=VALUE texts; a key that is repeated has several values. Raises UserError."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, is_pair, value = text.partition("=")
        if not key or not is_pair:
            raise UserError(f"--where {text}: pass KEY=VALUE, such as seed=1 or tag=pr-424")
        found.setdefault(key, []).append(literal(value))
    return found


def literal(text: str) -> Any:
    """A value as Python would read it, else the text: `1` is a number, `grpo` is not."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def is_chosen(record: Record, filters: Filters) -> bool:
    """Whether a run has one of the values of every key."""
    return all(has_any(record, key, values) for key, values in filters.items())


def has_any(record: Record, key: str, values: Sequence[Any]) -> bool:
    if key == TAG:
        return not {*record.facts.tags}.isdisjoint(map(str, values))
    found = value_of(record, key)
    return any(is_equal(found, present_value(key, value)) for value in values)


def value_of(record: Record, key: str) -> Any:
    """What a run's config has at a key; environment, experiment and seed also from where else they
    are known."""
    found = look_up(record.config, key)
    if found is not None or key not in ("env_id", "exp_name", "seed"):
        return found
    place = place_of(record)
    return {"env_id": place.env, "exp_name": place.experiment, "seed": place.seed}[key]


def is_equal(found: Any, wanted: Any) -> bool:
    """Whether a config's value equals the requested one, also if one of them was stored as text."""
    if isinstance(found, float) and isinstance(wanted, int | float):
        return math.isclose(found, wanted, rel_tol=1e-12)
    return bool(found == wanted or (found is not None and str(found) == str(wanted)))


def server_filter(filters: Filters) -> dict[str, Any]:
    """The same for wandb's server; the caller filters the result once more."""
    names = {key: "tags" if key == TAG else f"config.{key}" for key in filters}
    each = [{names[key]: {"$in": list(values)}} for key, values in filters.items()]
    return {"$and": each} if each else {}
