"""How a composed config becomes the checked one: `live` turns its nodes into the parts' frozen
dataclasses, which check themselves. Nothing below this module sees a config object.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.groups import CLASSES, class_of
from rlhf_lab.runs.trust import require_trusted_values
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

PLAIN = re.compile(r"\w[\w.+-]*")


def live(node: Any, key: str) -> Any:
    """Turn a composed node, mounted at `key`, into frozen parts, with the home folder for `~/`.
    Numbers are checked under their whole names first; a part's own complaint names its group, which
    is replaced by `key`."""
    if isinstance(node, str) and node.startswith("~/"):
        return os.path.expanduser(node)
    if isinstance(node, list):
        return [live(value, key) for value in node]
    if isinstance(node, dict):
        return {name: live(value, f"{key}.{name}") for name, value in node.items()}
    part = getattr(type(node), "PART", None)
    if part is None:
        return node
    limits.check(node, part, key)
    require_own_name(part, getattr(node, "name", ""), key)
    names = [column.name for column in dataclasses.fields(node)]
    values = {name: live(getattr(node, name), f"{key}.{name}") for name in names}
    group = getattr(part, "_key", "")
    try:
        return part(**values)
    except UserError as error:
        if not group or key == group:
            raise
        raise UserError(re.sub(rf"\b{group}\.(?=\w)", f"{key}.", str(error))) from error


def require_own_name(part: type, name: str, key: str) -> None:
    """Refuse a name, set in a file, that is no plain word, or is that of another option."""
    group = getattr(part, "_key", "")
    if name and not PLAIN.fullmatch(name):
        raise UserError(f"{key}.name={name}: a name is of letters, digits and ._+-")
    known = CLASSES.get(group, {})
    if name in known and class_of(known[name]) is not part:
        raise UserError(
            f"{key}.name={name} with the settings of another option ({part.__name__}): choose "
            f"{group}={name}, or leave {key}.name out"
        )


def typed(cfg: DictConfig) -> Config:
    """The checked config of a composed one. Raises UserError too where another author's run names
    code in it."""
    refuse_keys("", cfg, Config)
    nodes = {}
    for name in (f.name for f in dataclasses.fields(Config)):
        if OmegaConf.is_missing(cfg, name):
            raise UserError(f"{name}=??? is not set: pass {name}=<option>")
        node = cfg[name]
        nodes[name] = live(OmegaConf.to_object(node) if OmegaConf.is_config(node) else node, name)
        if OmegaConf.is_config(node):
            refuse_extra(f"{name}.", node, nodes[name])
        if isinstance(nodes[name], Mapping):
            raise UserError(f"{name}={nodes[name]} has no schema: choose an option of the group")
    # What the user leaves to the algorithm is settled here, so that a run records what it did.
    oversample = nodes["run"].oversample or nodes["algo"].needs.oversample
    nodes["run"] = dataclasses.replace(nodes["run"], oversample=oversample)
    config = Config(**nodes)
    require_trusted_values(config)
    return config


def refuse_extra(prefix: str, node: Any, part: Any) -> None:
    """Refuse keys that the schema does not have, in the part and in the parts that it holds."""
    refuse_keys(prefix, node, type(part))
    for held in ("terms", "tasks"):  # of a reward, of a mixture; elsewhere they may be numbers
        parts = getattr(part, held, None)
        if isinstance(parts, dict):
            refuse_extra_of(f"{prefix}{held}.", node[held], parts)


def refuse_extra_of(prefix: str, node: Any, parts: Mapping[str, Any]) -> None:
    """The same for the parts that a part holds by name."""
    for key, term in parts.items():
        place = f"{prefix}{key}"
        if isinstance(term, Mapping):
            raise UserError(
                f"{place}={term} has no schema: choose an option of the group, as in "
                f"+{prefix.split('.')[0]}@{place}=OPTION"
            )
        if dataclasses.is_dataclass(term):
            refuse_extra(f"{place}.", node[key], term)


def refuse_keys(prefix: str, node: Any, part: type) -> None:
    """Refuse keys that one part's schema does not have: Hydra lets `+key=value` through."""
    known = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else node
    extra = sorted(set(node) - set(known) - {"hydra"})
    if extra:
        from rlhf_lab.experiment.config.suggestions import remedy

        name, value = prefix + extra[0], node[extra[0]]
        while isinstance(value, Mapping) and len(value) == 1:
            ((inner, value),) = value.items()
            name = f"{name}.{inner}"
        question = remedy(name)
        raise UserError(
            f"{name}={value} is not an option: "
            f"{question}{' ' if question else ''}Choose one of "
            f"{', '.join(prefix + name for name in known)}"
        )
