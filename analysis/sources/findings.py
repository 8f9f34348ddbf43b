"""Findings: faults of runs that are reported instead of repaired without notice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kind of a fault; docs/results.md describes the consequence of each."""

    no_seed = "no_seed"
    tuning = "tuning"
    missing_metric = "missing_metric"
    cut_short = "cut_short"
    ragged = "ragged"
    duplicate = "duplicate"
    other_code = "other_code"
    other_config = "other_config"
    other_machine = "other_machine"
    other_kernels = "other_kernels"
    other_precision = "other_precision"
    other_evaluation = "other_evaluation"
    not_finite = "not_finite"
    not_a_number = "not_a_number"
    mixed_units = "mixed_units"
    mostly_zeroed = "mostly_zeroed"
    all_tied = "all_tied"
    damaged = "damaged"
    absent = "absent"
    unread = "unread"


@dataclass(frozen=True)
class Finding:
    """One fault of one run. run: its id, "" where no run is known; place: where it is."""

    kind: Kind
    run: str
    place: str
    what: str

    @property
    def line(self) -> str:
        """The finding as one line of text."""
        return f"{self.kind}: {self.place}: {self.what}"
