"""The schema of the config: mutable twins of the dataclasses, which Hydra checks by type."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import field
from typing import Any, get_type_hints

from hydra._internal.core_plugins import structured_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import MISSING

from rlhf_lab.experiment.config import NODES, Config
from rlhf_lab.experiment.own_parts import own_class
from rlhf_lab.experiment.plugins import own_parts
from rlhf_lab.experiment.registry import CLASSES, class_of, plain_options


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
        schemas = {name: schema_of(class_of(path)) for name, path in CLASSES[group].items()}
        for name, schema in schemas.items():
            store.store(group=f"{group}/schema", name=name, node=schema)
        for name, of in plain_options(group).items():
            if of in schemas:  # those of plugins are stored when they are looked for
                store.store(group=group, name=name, node=schemas[of])


class StructuredConfigSource(structured_config_source.StructuredConfigSource):  # type: ignore[misc]
    """Schemas in memory. Those of plugins are imported when they are first looked for: a run needs
    no plugin but its own. It has the name of Hydra's own class, as FileConfigSource does."""

    def load_config(self, config_path: str) -> ConfigResult:
        store_own(self.store, config_path)
        return super().load_config(config_path)

    def is_config(self, config_path: str) -> bool:
        store_own(self.store, config_path)
        return bool(super().is_config(config_path))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        found = super().list(config_path, results_filter)
        own = own_parts(config_path) if results_filter is not ObjectType.GROUP else ()
        return sorted({*found, *own})


def store_own(store: ConfigStore, path: str) -> None:
    """Give Hydra the part of a plugin that a path names: GROUP/NAME or GROUP/schema/NAME."""
    group, _, name = path.removesuffix(".yaml").partition("/")
    name = name.removeprefix("schema/")
    if (target := own_parts(group).get(name)) is not None:
        node = own_schema(group, name, target)
        store.store(group=group, name=name, node=node)
        store.store(group=f"{group}/schema", name=name, node=node)


@functools.cache
def own_schema(group: str, name: str, target: str) -> type:
    return schema_of(own_class(group, name, target))


def read_own_parts() -> None:
    """Let Hydra find parts of plugins."""
    Plugins.instance()  # which registers Hydra's own sources first
    source = StructuredConfigSource
    SourcesRegistry.instance().types[source.scheme()] = source
