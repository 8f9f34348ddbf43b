"""Warnings about what a round's metrics show, each once a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rlhf_lab.types.data import Metrics

ZEROED = "correction/zeroed"
# Share of the tokens above which a correction leaves most of a round out.
MOSTLY = 0.5
KEPT = "update/adapters_kept"
# Share of the adapters' update of which the rest is too much to lose.
NEARLY_ALL = 0.99


@dataclass
class RoundWarnings:
    """Passes the metrics of rounds on, and reports what is probably a mistake when it first occurs.

    log: what the metrics are for. correction: its name. report: takes one line.
    """

    log: Callable[[Metrics, int], None]
    correction: str
    report: Callable[[str], None]
    _reported: set[str] = field(default_factory=set, init=False)

    def __call__(self, metrics: Metrics, round_: int) -> None:
        self.log(metrics, round_)
        kept = metrics.get(KEPT, 1.0)
        if kept < NEARLY_ALL:
            self._report_once(
                KEPT,
                f"{1 - kept:.0%} of the weights that the adapters change are as before once the "
                f"generator has rounded them, in round {round_} (metric {KEPT}): its samples are "
                "not of the policy that is trained; pass generator.dtype=float32",
            )
        zeroed = metrics.get(ZEROED, 0.0)
        if zeroed > MOSTLY:
            self._report_once(
                ZEROED,
                f"correction={self.correction} gave weight 0 to {zeroed:.0%} of the tokens of "
                f"round {round_} (metric {ZEROED}): the policy learns from the rest alone; widen "
                "its interval, lower the staleness, or pass another correction",
            )

    def _report_once(self, key: str, text: str) -> None:
        if key not in self._reported:
            self._reported.add(key)
            self.report(f"warning: {text}")
