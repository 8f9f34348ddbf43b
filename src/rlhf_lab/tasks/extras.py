"""Packages that only some options need: imported where they are used, refused by name if absent."""

from __future__ import annotations

from importlib.util import find_spec

from rlhf_lab.types.errors import UserError


def require(module: str, extra: str, option: str, otherwise: str = "") -> None:
    """Refuse the option if its module is not installed; say which extra brings it, or what to do
    without."""
    if find_spec(module) is None:
        raise UserError(
            f"{option} needs the package {module.replace('_', '-')}: "
            f"pip install 'rlhf-lab[{extra}]'{f', or {otherwise}' if otherwise else ''}"
        )
