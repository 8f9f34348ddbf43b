"""Classes of plugins, checked when they are first used: what a part of each group must have."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rlhf_lab.experiment.config.groups import CLASSES, class_of
from rlhf_lab.experiment.config.plugins import imported, own_parts
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.rollout.generators.options import GeneratorOptions
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

# Members that this package uses of a part, in groups whose parts need not extend a class.
MEMBERS: Mapping[str, tuple[str, ...]] = {
    "algo": (
        *("objective", "reduction", "needs", "credit", "loss"),
        *("at_round", "state", "with_state", "adapted"),
    ),
    "correction": (
        *("corrects", "anchors_at_start", "needs", "warning", "weight", "step"),
        *("fitted", "proximal", "terms"),
    ),
    "tracker": (
        *("tensorboard", "wandb", "probe_groups", "probe_every", "reference_groups"),
        *("changed_share", "open"),
    ),
}
# The classes that parts of other groups extend, whose abstract methods they write.
EXTENDED: Mapping[str, type] = {
    "task": Task,
    "reward": RewardOptions,
    "generator": GeneratorOptions,
    "engine": EngineOptions,
}
# The class that brings most of what a part must have, and what is left to write.
BASES = {
    "algo": "rlhf_lab.algos.options.AlgorithmOptions",
    "correction": "rlhf_lab.algos.corrections.common.CorrectionOptions",
    "task": "rlhf_lab.tasks.task_options.GeneratedTask",
    "reward": "rlhf_lab.rewards.options.RewardOptions",
    "generator": "rlhf_lab.rollout.generators.options.GeneratorOptions",
    "engine": "rlhf_lab.training.engines.options.SingleEngineOptions",
    "tracker": "rlhf_lab.runs.trackers.options.TrackerOptions",
}


@functools.cache
def own_class(group: str, name: str, target: str) -> type:
    """The class of a plugin's part, `MODULE:CLASS`. Raises UserError with the remedy unless it can
    be an option of the group."""
    place = f"{group}={name} ({target})"
    module, _, class_name = target.partition(":")
    part = getattr(imported(module, place), class_name, None)
    if not isinstance(part, type):
        raise UserError(f"{place}: {module} has no class {class_name}: correct PARTS")
    if not dataclasses.is_dataclass(part) or not part.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise UserError(f"{place} is no frozen dataclass: write @dataclass(frozen=True) above it")
    require_options(place, name, part)
    require_members(place, group, part)
    return part


def require_options(place: str, name: str, part: type) -> None:
    """Refuse fields that could be no options: Hydra must know their types, a reader their use."""
    try:
        columns = limits.columns(part)
        OmegaConf.structured(part)
    except (NameError, TypeError, OmegaConfBaseException) as error:
        raise UserError(
            f"{place}: its fields are no options ({error}): give each a type that Hydra knows "
            "(int, float, bool, str, an Enum, list or dict of them) and import it at the top"
        ) from error
    if default_of(part, "name") != name:
        raise UserError(f'{place}: its first field must be name: str = limits.name("{name}")')
    for column in columns:
        if not column.about:
            raise UserError(
                f"{place}: the field {column.name} has no sentence about it: declare it by "
                f"rlhf_lab.types.limits, as limits.option(DEFAULT, about=...)"
            )
        if column.range is None and is_number(part, column.name):
            raise UserError(
                f"{place}: the field {column.name} is a number without a range: declare it by "
                "limits.number(DEFAULT, min=..., max=..., about=...)"
            )


def default_of(part: type, name: str) -> Any:
    return next((f.default for f in dataclasses.fields(part) if f.name == name), None)


def is_number(part: type, name: str) -> bool:
    default = default_of(part, name)
    return isinstance(default, int | float) and not isinstance(default, bool)


def require_members(place: str, group: str, part: type) -> None:
    """Refuse a class without what the group's parts must have."""
    base = EXTENDED.get(group, object)
    is_based = issubclass(part, base)
    if not is_based:
        raise UserError(
            f"{place} does not extend {base.__module__}.{base.__name__}, which has defaults for "
            f"what a {group} may leave out: extend it, or {BASES[group]} (docs/extending.md)"
        )
    known = {f.name for f in dataclasses.fields(part)}
    members = MEMBERS.get(group, ())
    missing = [name for name in members if not hasattr(part, name) and name not in known]
    missing += sorted(getattr(part, "__abstractmethods__", ()))
    if missing:
        raise UserError(
            f"{place} has no {', '.join(missing)}: extend {BASES[group]}, and write what it lacks "
            "(docs/extending.md)"
        )


def classes(group: str) -> dict[str, type]:
    """The classes of a group's schemas by name, those of plugins last."""
    here = {name: class_of(path) for name, path in CLASSES[group].items()}
    return here | {n: own_class(group, n, target) for n, target in own_parts(group).items()}
