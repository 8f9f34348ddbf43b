"""YAML files with earlier names of options, read as if they had the present ones; and the plugins
that files name, which are activated before the groups that they add to are looked at."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins import file_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import OmegaConf

from rlhf_lab.experiment.config.own_files import WORDS, options_in, require_form, with_choices
from rlhf_lab.experiment.config.plugins import activate, listed
from rlhf_lab.experiment.config.schema import HERE
from rlhf_lab.runs.renames import (
    GROUPS,
    VALUES,
    present_config,
    present_key,
    present_value,
    require_kept,
    warned,
)
from rlhf_lab.runs.trust import require_trust

FORMER_GROUP, GROUP = "budget/", "run/"
# An entry of a defaults list: `override /budget@run`.
ENTRY = re.compile(r"((?:override |optional )*/?)(.*)")


class FileConfigSource(file_config_source.FileConfigSource):  # type: ignore[misc]
    """Files of a folder, by their present names. It has the name of Hydra's own class: whoever
    registers that again, as launchers do, leaves this one in its place."""

    def load_config(self, config_path: str) -> ConfigResult:
        """A file, or that of the group's former name."""
        if os.path.isabs(config_path) or ".." in config_path.split("/"):
            require_trust(f"the file of options {config_path}")
        path = Path(self.path, self._normalize_file_name(self._existing(config_path)))
        config, header = options_in(path)
        before: Any = OmegaConf.to_container(config, resolve=False)
        group, where = config_path.rpartition("/")[0], f"{self.path}/{config_path}: "
        is_global = header.get("package") == "_global_" or not group
        require_form(path, group, header["package"], before)
        if is_global and (modules := before.get("plugins")):
            require_trust(f"plugins={modules}")
            activate(listed(modules, f"{where}plugins: {modules}"), where)
        node = "" if is_global else config_path.partition("/")[0]
        after = present_file(before, node and f"{node}.", where)
        if WORDS.search(path.read_text(encoding="utf-8-sig")):
            after = with_choices(after, node)
        if after != before:
            config = OmegaConf.create(after)
        return ConfigResult(self.provider, f"{self.scheme()}://{self.path}", config, header)

    def is_config(self, config_path: str) -> bool:
        if config_path.startswith(HERE):
            return False
        return bool(super().is_config(self._existing(config_path)))

    def _existing(self, path: str) -> str:
        is_missing = path.startswith(GROUP) and not super().is_config(path)
        return path.replace(GROUP, FORMER_GROUP, 1) if is_missing else path


def present_file(file: Any, prefix: str, where: str) -> Any:
    """What a file holds, by the present names; a former one is warned of. prefix: the node that
    the file is composed at, with a dot."""
    if not isinstance(file, dict):
        return file
    for key in keys_in(file, prefix):
        require_kept(key, where)
    found: dict[str, Any] = present_config(file, prefix)
    for former, present in zip(keys_in(file, prefix), keys_in(found, prefix), strict=True):
        warned(former, present, where)
    if isinstance(defaults := file.get("defaults"), list):
        found["defaults"] = [present_default(entry, where) for entry in defaults]
    sweeper = (file.get("hydra") or {}).get("sweeper") or {}
    if isinstance(params := sweeper.get("params"), dict):
        found["hydra"]["sweeper"]["params"] = {
            warned(key, present_key(key), where): present_value(key, value)
            for key, value in params.items()
        }
    return found


def keys_in(file: dict[str, Any], prefix: str) -> list[str]:
    """The values of a file by their keys, those that may have another name as KEY=VALUE."""
    found = []
    for name, value in file.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            found += keys_in(value, f"{key}.")
        else:
            found.append(f"{key}={value}" if key in VALUES else key)
    return found


def present_default(entry: Any, where: str) -> Any:
    """An entry of a defaults list."""
    if isinstance(entry, str):
        found = entry.replace("schema/recipe@", "schema/run@")
        return found.replace("schema/vllm_server@", "schema/vllm@")
    if not isinstance(entry, dict):
        return entry
    return dict(present_entry(str(name), value, where) for name, value in entry.items())


def present_entry(name: str, value: Any, where: str) -> tuple[str, Any]:
    """A group and the choice of an entry."""
    found = ENTRY.fullmatch(name)
    assert found, "every text matches"
    group, chosen = GROUPS.get(found[2], found[2]), present_value(found[2], value)
    if chosen != value:
        warned(f"{found[2]}={value}", f"{group}={chosen}", where)
    return warned(name, found[1] + group, where), chosen


def read_earlier_names() -> None:
    """Let Hydra read files so."""
    Plugins.instance()  # which registers Hydra's own sources first
    SourcesRegistry.instance().types[FileConfigSource.scheme()] = FileConfigSource
