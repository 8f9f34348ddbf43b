"""Cases of a test of which `make test` has some, and `make test-slow` the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest


def variants(cases: Mapping[str, Any], often: Collection[str]) -> list[Any]:
    """Cases by their names: those of `often` in every run of the tests, the others are slow.

    Raises ValueError for a name that no case has.
    """
    if unknown := set(often) - set(cases):
        raise ValueError(f"no case is named {', '.join(sorted(unknown))}")
    return [
        pytest.param(case, id=name, marks=() if name in often else pytest.mark.slow)
        for name, case in cases.items()
    ]


def names(cases: Iterable[str], often: Collection[str]) -> list[Any]:
    """The same of names alone."""
    return variants({name: name for name in cases}, often)


def tuples(cases: Iterable[tuple[Any, ...]], often: Collection[tuple[Any, ...]]) -> list[Any]:
    """The same of cases of several parameters."""
    return [pytest.param(*case, marks=() if case in often else pytest.mark.slow) for case in cases]


def slow(*options: str) -> Any:
    """A case that is these options, for `make test-slow` alone."""
    return pytest.param(options, marks=pytest.mark.slow)
