"""The options of every config group, those of plugins included, and their classes."""

from __future__ import annotations

from rlhf_lab.experiment.config.groups import CLASSES, DEFAULTS, conf_folder, option_files
from rlhf_lab.experiment.config.plugins import own_parts


def plain_options(group: str) -> dict[str, str]:
    """The options that have no file: their names, and the schemas whose defaults they are."""
    files = option_files(group)
    found = DEFAULTS.get(group, {name: name for name in CLASSES.get(group, ())})
    found = found | {name: name for name in own_parts(group)}
    return {name: schema for name, schema in found.items() if name not in files}


def group_options() -> dict[str, list[str]]:
    """The names of every group's options."""
    folders = {path.name for path in conf_folder().iterdir() if path.is_dir()} - {"hydra"}
    return {
        group: sorted({*option_files(group), *plain_options(group)})
        for group in sorted({*folders, *CLASSES})
    }
