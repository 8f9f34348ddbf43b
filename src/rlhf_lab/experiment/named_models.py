"""Options of the group `model` that stand for a hub name or a folder: `model=Qwen/Qwen3-0.6B`."""

from __future__ import annotations

import re
from pathlib import Path

from rlhf_lab.experiment.registry import group_options
from rlhf_lab.models.options import PACKAGE

GROUP = "model"
# Beginnings of paths of folders of the user's, never of options.
HERE = (f"{GROUP}/./", f"{GROUP}/../")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
ENDING = ".gguf"
# What the group takes in addition to its options.
REMEDY = ", OWNER/NAME of the hub, or a folder that is there"


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
