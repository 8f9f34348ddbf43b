"""Composed configs for a few milliseconds: Hydra composes each choice of groups once a process.

Hydra applies overrides of values after it has merged the chosen files, in their order. So a copy of
the merged files with the overrides applied by Hydra's own function is what Hydra would compose.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

from rlhf_lab.experiment.config.groups import conf_folder
from rlhf_lab.experiment.config.schema import register


def composed(*overrides: str, name: str = "config", folder: Path | None = None) -> DictConfig:
    """What Hydra composes from these overrides; the caller's own copy, without the node `hydra`."""
    folder = folder or conf_folder()
    # Whatever is wrong, Hydra complains in its own words; what cannot be done so, Hydra does.
    with suppress(Exception):
        choices, values = divided(OverridesParser.create().parse_overrides(list(overrides)))
        cfg = copy.deepcopy(merged(folder, name, tuple(choices)))
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
        return cfg
    return by_hydra(folder, name, overrides)


def divided(overrides: Sequence[Override]) -> tuple[list[str], list[Override]]:
    """The overrides that choose files, or might, as lines; and those of values."""
    choices = [override for override in overrides if not is_value(override)]
    # Hydra would apply such a value among the others, in its turn.
    if any(isinstance(override.value(), dict | list) for override in choices):
        raise ValueError("a whole node is overridden")
    values = [override for override in overrides if is_value(override)]
    return [str(override.input_line) for override in choices], values


def is_value(override: Override) -> bool:
    """Whether this surely sets one value below a group: the name of a group has no dot."""
    special = override.is_sweep_override() or override.is_hydra_override()
    return override.package is None and "." in override.key_or_group and not special


@functools.cache
def merged(folder: Path, name: str, choices: tuple[str, ...]) -> DictConfig:
    """What Hydra composes from choices of groups alone: copy it, and leave it as it is."""
    return by_hydra(folder, name, choices)


# Schemas are made anew by each registration, which takes half as long as a composition.
registered = functools.cache(register)


def by_hydra(folder: Path, name: str, overrides: Sequence[str], hydra: bool = False) -> DictConfig:
    """Hydra's own composition, whether or not Hydra is initialised for another folder."""
    registered()
    instance = GlobalHydra.instance()
    outer = instance.hydra
    instance.clear()
    try:
        with initialize_config_dir(str(folder), version_base="1.3"):
            cfg: DictConfig = compose(name, list(overrides), return_hydra_config=hydra)
            return cfg
    finally:
        GlobalHydra.instance().hydra = outer
