"""What is wrong with runs, or with runs as a group: told, never repaired in silence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a finding is about; docs/results.md says what follows from each."""

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
    other_evaluation = "other_evaluation"
    not_finite = "not_finite"
    not_a_number = "not_a_number"
    mixed_units = "mixed_units"
    damaged = "damaged"
    absent = "absent"


@dataclass(frozen=True)
class Finding:
    """One fact about one run. run: its id, "" where no run could be told; place: where it is."""

    kind: Kind
    run: str
    place: str
    what: str

    @property
    def line(self) -> str:
        """The finding as one line of text."""
        return f"{self.kind}: {self.place}: {self.what}"
