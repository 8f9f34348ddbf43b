"""docs/config.md from the schema: python -m rlhf_lab.cli.config_reference > docs/config.md"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from rlhf_lab.cli.conf import conf_folder
from rlhf_lab.experiment.config import GROUPS, Config, OutputOptions, has_default
from rlhf_lab.rewards.shaping import ShapingOptions
from rlhf_lab.runs.kernels import Kernels
from rlhf_lab.tasks.audit import DataOptions
from rlhf_lab.training.stages.labels import LabelOptions
from rlhf_lab.training.stages.reward_model import RewardModelOptions
from rlhf_lab.training.stages.sft import SFTOptions
from rlhf_lab.types.limits import column_of

# Where a group's values live in the composed config, if not under the group's own name.
MOUNTED = {"budget": "run", "model": "model (and proxy)", "reward": "reward (and judge)"}
NODES = {
    "sft": SFTOptions,
    "labels": LabelOptions,
    "reward_model": RewardModelOptions,
    "shaping": ShapingOptions,
    "data": DataOptions,
    "output": OutputOptions,
}
HEAD = "| key | type | default | allowed |"
OVERLAYS = ("experiment", "launcher", "debug")


def type_text(kind: Any) -> str:
    """A type as a user would pass it."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " \\| ".join(str(member.value) for member in kind)
    return str(getattr(kind, "__name__", kind))


def keys(part: type, prefix: str) -> Iterator[str]:
    """A table row for every value of a part."""
    hints = get_type_hints(part)
    for column in dataclasses.fields(part):
        made = column.default_factory
        default = column.default if made is dataclasses.MISSING else made()
        default = getattr(default, "value", default)
        shown = f"`{default!r}`" if has_default(column) else "required"
        allowed = column_of(part, column.name).range or ""
        kind = type_text(hints[column.name])
        yield f"| `{prefix}.{column.name}` | {kind} | {shown} | {allowed} |"


def section(part: type, prefix: str) -> Iterator[str]:
    """A part: what it is and its values."""
    yield from (inspect.getdoc(part) or "", "", HEAD, "|---|---|---|---|")
    yield from keys(part, prefix)
    yield ""


def options(group: str) -> Iterator[str]:
    """The YAML options of a group: what each is for, and what it sets."""
    for path in sorted((conf_folder() / group).glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        comments = [
            line[2:]
            for line in text.splitlines()
            if line.startswith("# ") and not line.startswith("# @package")
        ]
        values = {k: v for k, v in yaml.safe_load(text).items() if k not in ("defaults", "name")}
        sets = f" Sets `{values}`." if values else ""
        yield f"- `{path.stem}`: {' '.join(comments)}{sets}".rstrip().removesuffix(":")


def reference() -> str:
    """The whole page."""
    lines = [
        "# Config reference",
        "",
        "Generated from the schema by `make docs`; do not edit. Choose an option with",
        "`group=option`, a value with `key=value`; `rlhf-lab train --cfg job` shows the result.",
        "",
    ]
    for group, parts in GROUPS.items():
        prefix = MOUNTED.get(group, group)
        lines += [f"## {group}", "", f"Values under `{prefix}`. Options:", "", *options(group), ""]
        for name, part in parts.items():
            if len(parts) > 1:
                lines += [f"### {group}: {name}", ""]
            lines += section(part, prefix.split()[0])
    for name, part in NODES.items():
        lines += [f"## {name}", "", *section(part, name)]
    lines += ["## Overlays", ""]
    for group in OVERLAYS:
        lines += [f"`{group}=`", "", *options(group), ""]
    seeds = column_of(Config, "seed").range
    about = f"`seed` (int, default `1`, {seeds}) keys all randomness of a run."
    lines += ["## seed", "", about, "", "## kernels", "", inspect.getdoc(Kernels) or "", ""]
    lines += [f"`kernels` ({type_text(Kernels)}, default `{Kernels.native.value}`).", ""]
    return "\n".join(lines)


def is_current(path: Path) -> bool:
    """Whether a written page is what the schema says now."""
    return path.is_file() and path.read_text(encoding="utf-8") == reference()


if __name__ == "__main__":
    sys.stdout.write(reference())
