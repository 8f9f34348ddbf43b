"""The result of a search: its trials, the chosen setting, and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.sweeps.search.final_test import Arm
from rlhf_lab.sweeps.search.halving import rank_trials
from rlhf_lab.sweeps.search.options import SearchOptions
from rlhf_lab.sweeps.search.runs import Usage, total_usage
from rlhf_lab.sweeps.search.space import Dimension
from rlhf_lab.sweeps.search.study import Trial


@dataclass(frozen=True)
class SearchResult:
    """The contents of the report. arms: the default and the chosen setting on the test seeds, None
    before the test."""

    folder: Path
    fixed: Sequence[str]
    space: Sequence[Dimension]
    options: SearchOptions
    trials: Sequence[Trial]
    importances: Mapping[str, float]
    code: str
    arms: tuple[Arm, Arm] | None = None

    @property
    def ranked(self) -> list[Trial]:
        """The trials that reached the last rung, best first."""
        last = self.options.rungs - 1
        values = {t.number: t.values[last] for t in self.trials if t.state == "complete"}
        return [self.trials[n] for n in rank_trials(values, len(values), self.options.direction)]

    @property
    def chosen(self) -> Trial | None:
        """The best trial of the last rung."""
        return self.ranked[0] if self.ranked else None

    def usage(self, part: str) -> Usage:
        """The cost of the tuning runs (TRIAL) or of the test runs (TEST)."""
        return total_usage(sorted(self.folder.glob(f"{part}-*/seed-*")))
