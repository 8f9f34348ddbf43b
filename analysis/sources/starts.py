"""What a manifest records of every start of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlhf_lab.runs.manifest import kernels_in, precision_in


def kernels_of(manifest: Mapping[str, Any]) -> str:
    """The CPU kernels that computed a run, those before it was resumed first."""
    return of_all_starts(manifest, "kernels", kernels_in(manifest))


def precision_of(manifest: Mapping[str, Any]) -> str:
    """The devices and types of numbers that computed a run, those before it was resumed first."""
    return of_all_starts(manifest, "precision", precision_in(manifest))


def of_all_starts(manifest: Mapping[str, Any], fact: str, last: str) -> str:
    """The different values of a fact of a run's starts, in order."""
    starts = [*(str(again.get(fact, "")) for again in manifest.get("resumed", [])), last]
    return " then ".join(dict.fromkeys(filter(None, starts)))
