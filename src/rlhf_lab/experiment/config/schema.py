"""The schema of the config: mutable twins of the dataclasses, which Hydra checks by type."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, get_type_hints

from hydra._internal.core_plugins import structured_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import MISSING, OmegaConf

from rlhf_lab.experiment.config.config import NODES, Config
from rlhf_lab.experiment.config.groups import CLASSES, class_of
from rlhf_lab.experiment.config.own_parts import own_class
from rlhf_lab.experiment.config.plugins import own_parts
from rlhf_lab.experiment.config.registry import group_options, plain_options
from rlhf_lab.models.options import PACKAGE

GROUP = "model"
# Beginnings of paths of folders of the user's, never of options.
HERE = (f"{GROUP}/./", f"{GROUP}/../")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
ENDING = ".gguf"
# What the group takes in addition to its options.
REMEDY = ", OWNER/NAME of the hub, or a folder that is there"


@functools.cache
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


@functools.cache
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


def register() -> None:
    """Let Hydra find the tree, `schema`, the schemas of parts, `GROUP/schema/NAME`, and every
    option that is a class with its defaults."""
    ConfigStore.instance().store(name="schema", node=tree())
    Plugins.instance()  # which registers Hydra's own sources first
    source = StructuredConfigSource
    SourcesRegistry.instance().types[source.scheme()] = source


class StructuredConfigSource(structured_config_source.StructuredConfigSource):  # type: ignore[misc]
    """Schemas in memory, made and imported when they are first looked for: a run needs few of them.
    It has the name of Hydra's own class, as FileConfigSource does."""

    def load_config(self, config_path: str) -> ConfigResult:
        if name := named_model(config_path):
            node = {"defaults": ["/model/schema/pretrained@_here_", "_self_"], "path": name}
            config = OmegaConf.create({**node, "name": "pretrained"})
            return ConfigResult(
                self.provider, f"{self.scheme()}://{self.path}", config, {"package": None}
            )
        store_part(self.store, config_path)
        return super().load_config(config_path)

    def is_config(self, config_path: str) -> bool:
        is_known = part_at(config_path) is not None or bool(super().is_config(config_path))
        return is_known or bool(named_model(config_path))

    def is_group(self, config_path: str) -> bool:
        return bool(part_names(config_path.rstrip("/"))) or bool(super().is_group(config_path))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        path = config_path.rstrip("/")
        names = part_names(path) if results_filter is not ObjectType.GROUP else ()
        found = super().list(path, results_filter) if super().is_group(path) else ()
        return sorted({*found, *names})


def part_names(group: str) -> Sequence[str]:
    """The names of the parts in GROUP, those without a file, or in GROUP/schema."""
    group, _, rest = group.partition("/")
    if rest:
        return (*CLASSES.get(group, ()), *own_parts(group)) if rest == "schema" else ()
    return tuple(plain_options(group))


def part_at(path: str) -> tuple[str, str] | None:
    """The group of the part at GROUP/NAME or GROUP/schema/NAME, and the name of its class there;
    None where there is no part."""
    group, _, name = path.rstrip("/").removesuffix(".yaml").partition("/")
    of = name.removeprefix("schema/")
    if of == name:
        of = plain_options(group).get(name, "")
    return (group, of) if of in CLASSES.get(group, ()) or of in own_parts(group) else None


def store_part(store: ConfigStore, path: str) -> None:
    """Give Hydra the part at a path, if there is one."""
    if (part := part_at(path)) is None:
        return
    group, of = part
    own = own_parts(group).get(of)
    node = schema_of(own_class(group, of, own) if own else class_of(CLASSES[group][of]))
    folder, _, name = path.removesuffix(".yaml").rpartition("/")
    store.store(group=folder, name=name, node=node)


def named_model(path: str) -> str:
    """The hub name, folder or file that a path of Hydra's, `model/NAME`, stands for as an option of
    the group; "" for anything else. Presets of the same name come before it. Paths with the ending
    of config files are those of Hydra's own, which looks for a schema of each file."""
    group, _, name = path.rstrip("/").partition("/")
    is_file = name.endswith(".yaml")
    if group != GROUP or is_file or name.startswith("schema/") or name in group_options()[GROUP]:
        return ""
    is_here = Path(name).is_dir() or (name.endswith(ENDING) and Path(name).is_file())
    return name if is_here or name.startswith(PACKAGE) or HUB_NAME.fullmatch(name) else ""
