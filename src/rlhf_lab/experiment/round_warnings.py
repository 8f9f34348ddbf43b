"""Warnings about what a round's metrics show, each once a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import response_key, response_tokens
from rlhf_lab.runs.metric_names import MOSTLY, ZEROED
from rlhf_lab.types.data import Metrics

EMPTY, ENDED = "sample/empty_rate", "sample/eos_rate"
KEPT = "update/adapters_kept"
# Share of the answers above which too many of a round are empty, or cut.
MANY = 0.2
# Share of the adapters' update of which the rest is too much to lose.
NEARLY_ALL = 0.99


@dataclass
class RoundWarnings:
    """Passes the metrics of rounds on, and reports what is probably a mistake when it first occurs.

    log: what the metrics are for. config: of the run. report: takes one line.
    """

    log: Callable[[Metrics, int], None]
    config: Config
    report: Callable[[str], None]
    _reported: set[str] = field(default_factory=set, init=False)

    def __call__(self, metrics: Metrics, round_: int) -> None:
        self.log(metrics, round_)
        for name, text in self._findings(metrics):
            if name not in self._reported:
                self._reported.add(name)
                self.report(f"warning: round {round_}: {text} (metric {name})")

    def _findings(self, metrics: Metrics) -> Iterator[tuple[str, str]]:
        """Metrics that show a mistake, with what they show and what to do."""
        if (empty := metrics.get(EMPTY, 0.0)) > MANY:
            yield EMPTY, f"{empty:.0%} of the answers are empty: {self._of_empty()}"
        if (cut := 1 - metrics.get(ENDED, 1.0)) > MANY:
            key = response_key(self.config)
            yield (
                ENDED,
                f"{cut:.0%} of the answers are cut at {key}={response_tokens(self.config)}: raise "
                "it, or ask for shorter answers",
            )
        if (kept := metrics.get(KEPT, 1.0)) < NEARLY_ALL:
            yield (
                KEPT,
                f"{1 - kept:.0%} of the weights that the adapters change are as before once the "
                "generator has rounded them: its samples are not of the policy that is trained; "
                "pass generator.dtype=float32",
            )
        if (zeroed := metrics.get(ZEROED, 0.0)) > MOSTLY:
            yield (
                ZEROED,
                f"correction={self.config.correction.name} gave weight 0 to {zeroed:.0%} of the "
                "tokens: the policy learns from the rest alone; widen its interval, lower the "
                "staleness, or pass another correction",
            )

    def _of_empty(self) -> str:
        """What to do about empty answers."""
        if self.config.task.chat in (False, "false"):
            return "a model that is made for chats needs task.chat=true"
        return "look at prompts and answers with `rlhf-lab data` and `rlhf-lab samples`"
