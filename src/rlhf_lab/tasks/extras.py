"""Packages that only some options need: imported where they are used."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from rlhf_lab.types.errors import UserError


def require_package(module: str, extra: str, option: str, otherwise: str = "") -> None:
    """Refuse an option whose module is not installed. extra: the extra that installs it.
    otherwise: another remedy."""
    if find_spec(module) is None:
        raise UserError(
            f"{option} needs the package {module.replace('_', '-')}: "
            f"pip install 'rlhf-lab[{extra}]'{f', or {otherwise}' if otherwise else ''}"
        )


@contextmanager
def importing() -> Iterator[None]:
    """For the first import of a package that was never compiled: Python warns of strings in it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="invalid escape sequence")
        yield
