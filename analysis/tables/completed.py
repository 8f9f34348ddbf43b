"""Configs that versions of the package with other options recorded, made comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from rlhf_lab_analysis.sources.record import Record, flat_config

# A node of a config, by its dotted key, and the name of the option that it holds.
Owner: TypeAlias = tuple[str, Any]


def completed(records: Sequence[Record]) -> list[Record]:
    """The same runs. An option that a run's config lacks has the default there that another run of
    the same source recorded with the same part: the option was added with a default that changes
    nothing. An option that the other run changed stays unset."""
    flats = [flat_config(record.config) for record in records]
    if len({frozenset(flat) for flat in flats}) == 1:
        return [*records]
    defaults: dict[tuple[str, Owner], dict[str, Any]] = {}
    for record, flat in zip(records, flats, strict=True):
        if record.facts.changed is not None:
            for key in flat.keys() - record.facts.changed:
                owner = owner_of(key, flat)
                defaults.setdefault((record.source, owner), {})[key] = flat[key]
    return [with_defaults(*pair, defaults) for pair in zip(records, flats, strict=True)]


def owner_of(key: str, flat: Mapping[str, Any]) -> Owner:
    """The part that an option belongs to: the longest node above it that has a name."""
    node = key.rpartition(".")[0]
    while "." in node and f"{node}.name" not in flat:
        node = node.rpartition(".")[0]
    return node, flat.get(f"{node}.name")


def with_defaults(
    record: Record, flat: Mapping[str, Any], defaults: Mapping[tuple[str, Owner], dict[str, Any]]
) -> Record:
    nodes = {key.partition(".")[0] for key in flat}
    added = {
        key: value
        for (source, (node, name)), values in defaults.items()
        if source == record.source
        and (node.partition(".")[0] not in nodes or flat.get(f"{node}.name") == name)
        for key, value in values.items()
        if key not in flat
    }
    return replace(record, config={**record.config, **added}) if added else record
