"""The schema of the config: mutable twins of the dataclasses, which Hydra checks by type."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import field
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from rlhf_lab.experiment.config import NODES, Config
from rlhf_lab.experiment.registry import CLASSES, classes, plain_options


def schema_of(part: type) -> type:
    """A mutable twin of a frozen dataclass, which Hydra can override and check by type."""
    hints = get_type_hints(part)
    columns = [(f.name, hints[f.name], default_of(f)) for f in dataclasses.fields(part)]
    return dataclasses.make_dataclass(part.__name__, columns, namespace={"PART": part})


def default_of(column: dataclasses.Field[Any]) -> Any:
    """The same default, or MISSING, for the twin's field."""
    if column.default_factory is not dataclasses.MISSING:
        return field(default_factory=column.default_factory)
    return field(default=column.default if has_default(column) else MISSING)


def has_default(column: dataclasses.Field[Any]) -> bool:
    """Whether the part can be made without this value."""
    missing = dataclasses.MISSING
    return column.default is not missing or column.default_factory is not missing


def tree() -> type:
    """The schema of the whole config. Group nodes are typed by the option that is chosen."""
    hints = get_type_hints(Config)
    columns: list[Any] = []
    for column in dataclasses.fields(Config):
        kind: Any = Any
        default = field(default=MISSING)
        if has_default(column):
            kind, default = hints[column.name], default_of(column)
        elif column.name in NODES:
            kind = schema_of(hints[column.name])
            default = field(default_factory=kind)
        columns.append((column.name, kind, default))
    return dataclasses.make_dataclass("ConfigTree", columns)


@functools.cache
def register() -> None:
    """Give Hydra every schema, `schema` for the tree and `GROUP/schema/NAME` for parts, and every
    option that is a class with its defaults."""
    store = ConfigStore.instance()
    store.store(name="schema", node=tree())
    for group in CLASSES:
        schemas = {name: schema_of(part) for name, part in classes(group).items()}
        for name, schema in schemas.items():
            store.store(group=f"{group}/schema", name=name, node=schema)
        for name, of in plain_options(group).items():
            store.store(group=group, name=name, node=schemas[of])
