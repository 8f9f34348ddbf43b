"""Faster composition for tests: Hydra merges the config files of each choice of groups once per
process, and OmegaConf copies a node's metadata without a deep copy of its types.

Everything else is Hydra's own: it reads overrides, decides which of them choose files, and applies
the others to its own copy of what it merged.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra._internal import config_loader_impl as loading
from hydra._internal import config_repository as repositories
from hydra._internal import defaults_list as lists
from omegaconf import DictConfig
from omegaconf.base import Metadata

from rlhf_lab.experiment.config.groups import conf_folder

LOADER: Any = loading.ConfigLoaderImpl
REPOSITORY: Any = repositories.CachingConfigRepository
NODE: Any = Metadata
# Files elsewhere are a test's own, which may write them anew.
FIXED = conf_folder().parent


class Hydra:
    """As it came."""

    create = staticmethod(lists.create_defaults_list)
    merge = LOADER._compose_config_from_defaults_list
    copy_repository = REPOSITORY.__init__
    map_choices = lists._create_interpolation_map


# By what was chosen, and from where; and what was merged, by the list of it that is kept here.
lists_made: dict[tuple[Any, ...], Any] = {}
merged: dict[int, DictConfig] = {}
NOTHING = DictConfig({})


def quicken(is_quick: bool = True) -> None:
    """Take the place of what Hydra does anew for every composition, or leave all to it again."""
    loading.create_defaults_list = create if is_quick else Hydra.create
    LOADER._compose_config_from_defaults_list = merge if is_quick else Hydra.merge
    REPOSITORY.__init__ = copy_repository if is_quick else Hydra.copy_repository
    lists._create_interpolation_map = map_choices if is_quick else Hydra.map_choices
    if is_quick:
        NODE.__deepcopy__ = copy_metadata
    elif "__deepcopy__" in vars(NODE):
        del NODE.__deepcopy__


@contextmanager
def quickened(is_quick: bool) -> Iterator[None]:
    """The same for a while."""
    before = loading.create_defaults_list is create
    quicken(is_quick)
    try:
        yield
    finally:
        quicken(before)


def create(
    repo: Any, config_name: str | None, overrides_list: list[Any], **options: bool
) -> lists.DefaultsList:
    """The files that are merged, and the overrides that are applied to them."""

    def made() -> Any:
        return Hydra.create(
            repo=repo, config_name=config_name, overrides_list=overrides_list, **options
        )

    places = tuple((source.provider, source.path) for source in repo.get_sources())
    if not all(map(is_fixed, repo.get_sources())):
        return made()
    asked = lists.Overrides(repo=repo, overrides_list=overrides_list)
    chosen = (asked.override_choices, asked.append_group_defaults, asked.deletions)
    key = (places, config_name, repr(chosen), *sorted(options.items()))
    if key not in lists_made:
        lists_made[key] = made()
    known = lists_made[key]
    return lists.DefaultsList(
        defaults=known.defaults,
        defaults_tree=known.defaults_tree,
        config_overrides=asked.config_overrides,
        overrides=known.overrides,
    )


def is_fixed(source: Any) -> bool:
    """Whether no test writes what is found there."""
    return source.scheme() != "file" or Path(source.path).absolute().is_relative_to(FIXED)


def merge(self: Any, defaults: list[Any], repo: Any) -> DictConfig:
    """A copy of what the files come to."""
    if not any(known.defaults is defaults for known in lists_made.values()):
        whole: DictConfig = Hydra.merge(self, defaults=defaults, repo=repo)
        return whole
    if id(defaults) not in merged:
        merged[id(defaults)] = Hydra.merge(self, defaults=defaults, repo=repo)
    return copy.deepcopy(merged[id(defaults)])


def copy_repository(self: Any, delegate: Any) -> None:
    """Hydra copies all sources, to set others in the copy; they are not changed themselves."""
    self.delegate = copy.copy(delegate)
    self.cache = {}


def map_choices(overrides: Any, defaults_list: list[Any], self_added: bool) -> DictConfig:
    """What has been chosen so far, by which Hydra resolves interpolations of a file's defaults; of
    the others it looks nothing up."""
    if any(default.is_interpolation() for default in defaults_list):
        known: DictConfig = Hydra.map_choices(overrides, defaults_list, self_added)
        return known
    return NOTHING


def copy_metadata(self: Any, memo: dict[int, Any]) -> Any:
    """What OmegaConf keeps of a node: types and names, which are never changed in place, the flags,
    and what resolvers found."""
    copied = object.__new__(type(self))
    vars(copied).update(vars(self))
    copied.flags = None if self.flags is None else dict(self.flags)
    found = self.resolver_cache
    copied.resolver_cache = copy.deepcopy(found, memo) if found else defaultdict(dict)
    return copied
