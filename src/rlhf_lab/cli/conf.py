"""conf/ of the checkout: where it lies, and the options of its groups."""

from __future__ import annotations

from pathlib import Path

from rlhf_lab.types.errors import UserError


def conf_folder() -> Path:
    """conf/ of the checkout that this package is installed from (editable installs)."""
    folder = Path(__file__).resolve().parents[3] / "conf"
    if not folder.is_dir():
        raise UserError(f"{folder} is missing: install rlhf_lab from a checkout (pip install -e .)")
    return folder


def group_options() -> dict[str, list[str]]:
    """The names of every config group's options."""
    groups = [path for path in conf_folder().iterdir() if path.is_dir() and path.name != "hydra"]
    return {
        group.name: sorted(path.stem for path in group.glob("*.yaml")) for group in sorted(groups)
    }
