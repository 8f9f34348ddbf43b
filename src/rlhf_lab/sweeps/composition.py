"""Compose the configs of many jobs fast: Hydra merges every choice of config files only once.

Hydra applies overrides of values after it has merged the chosen files, in their order. So a copy of
the merged files, with the overrides applied by Hydra's own function, is what Hydra would compose.
Jobs that differ only in their seed share even that. Any other override, and any error, is left to
Hydra itself.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.suggestions import require_overlays
from rlhf_lab.experiment.config.typed import typed
from rlhf_lab.sweeps.grid import SEED, SEEDS

# The name of the resolver that reads the job's own values, and of the node that holds them.
OF_HYDRA = "hydra"


class NeedsHydra(Exception):
    """Overrides or merged files that only Hydra itself can compose."""


@dataclass
class Composer:
    """Composes the jobs of one sweep. master: the sweep's own config."""

    loader: Any
    master: DictConfig
    _merged: dict[tuple[str, ...], DictConfig | None] = field(default_factory=dict)
    _conditions: dict[tuple[str, ...], Config] = field(default_factory=dict)

    @contextmanager
    def config(self, overrides: Sequence[str]) -> Iterator[Config]:
        """The config of overrides; while the block runs, `hydra:` in it refers to the job."""
        before = HydraConfig.instance().cfg
        try:
            try:
                config = self._by_difference(overrides)
            except (NeedsHydra, HydraException, OmegaConfBaseException):
                cfg = self.loader.load_sweep_config(self.master, list(overrides))
                require_overlays(cfg.hydra.runtime, self.loader)
                HydraConfig.instance().set_config(cfg)
                config = typed(cfg)
            yield config
        finally:
            HydraConfig.instance().cfg = before

    def _by_difference(self, overrides: Sequence[str]) -> Config:
        parsed = [parsed_once(text) for text in overrides]
        seeds = {one.key_or_group: one.value() for one in parsed if one.key_or_group in SEEDS}
        rest = tuple(
            text
            for text, one in zip(overrides, parsed, strict=True)
            if one.key_or_group not in SEEDS
        )
        is_once = len(rest) + len(seeds) == len(overrides)
        if not seeds or not is_once or any(type(seed) is not int for seed in seeds.values()):
            return self._composed(parsed)[0]
        condition = (*rest, *seeds)
        if condition not in self._conditions:
            config, is_of_seed = self._composed(parsed)
            if is_of_seed:
                return config
            self._conditions[condition] = config
        return replace(self._conditions[condition], **seeds)

    def _composed(self, parsed: Sequence[Override]) -> tuple[Config, bool]:
        """The config, and whether any other value is interpolated from the seed."""
        choices = tuple(str(one.input_line) for one in parsed if not is_value(one))
        if choices not in self._merged:
            self._merged[choices] = self._merge(choices)
        merged = self._merged[choices]
        if merged is None or any(OF_HYDRA in str(one.input_line) for one in parsed):
            raise NeedsHydra
        cfg = copy.deepcopy(merged)
        values = [override for override in parsed if is_value(override)]
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
        return typed(cfg), any(SEED in text for text in interpolations(cfg))

    def _merge(self, choices: tuple[str, ...]) -> DictConfig | None:
        """The merged files without the node `hydra`; None if a value is interpolated from it."""
        cfg: DictConfig = self.loader.load_sweep_config(self.master, list(choices))
        require_overlays(cfg.hydra.runtime, self.loader)
        with read_write(cfg), open_dict(cfg):
            cfg.pop(OF_HYDRA)
        return None if any(OF_HYDRA in text for text in interpolations(cfg)) else cfg


@functools.lru_cache(maxsize=100_000)
def parsed_once(text: str) -> Override:
    """The parsed override; applying it does not change it."""
    return OverridesParser.create().parse_override(text)


def is_value(override: Override) -> bool:
    """Whether the override sets the seed or a value below a group, rather than choosing a file."""
    special = override.is_sweep_override() or override.is_hydra_override()
    is_below = "." in override.key_or_group or override.key_or_group in SEEDS
    if is_below and override.package is None and not special:
        return True
    if isinstance(override.value(), dict | list):
        raise NeedsHydra  # Hydra would apply it among the values, in its turn
    return False


def interpolations(cfg: DictConfig) -> Iterator[str]:
    """All texts of a config that are interpolated from other values."""
    left: list[Any] = [OmegaConf.to_container(cfg, resolve=False)]
    while left:
        value = left.pop()
        if isinstance(value, dict | list):
            left.extend(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, str) and "${" in value:
            yield value
