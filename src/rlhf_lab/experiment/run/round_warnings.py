"""Warnings of a run while it trains: what a round shows, and updates that learn nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import response_key, response_tokens
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.metric_names import FIRST_ROUNDS, MOSTLY, TIED, ZEROED
from rlhf_lab.types.data import Metrics

EMPTY, ENDED = "sample/empty_rate", "sample/eos_rate"
KEPT = "update/adapters_kept"
# Share of the answers above which too many of a round are empty, or cut.
MANY = 0.2
# Share of the adapters' update of which the rest is too much to lose.
NEARLY_ALL = 0.99
UPDATES, EMPTY_UPDATES = "total/updates", "total/updates_empty"
MASKED = "sample/masked"
Row = Mapping[str, Any]


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


@dataclass
class NothingTrained:
    """Passes the metrics of rounds on, and warns once if the first of them trained nothing.

    log: what the metrics are for. config: of the run. report: takes one line.
    """

    log: Callable[[Metrics, int], None]
    config: Config
    report: Callable[[str], None]
    _rows: list[Row] = field(default_factory=list, init=False)

    def __call__(self, metrics: Metrics, round_: int) -> None:
        self.log(metrics, round_)
        first = min(FIRST_ROUNDS, self.config.run.num_rounds)
        if len(self._rows) < first:
            self._rows.append(metrics)
            if len(self._rows) == first and (text := nothing_trained(self._rows, self.config)):
                self.report(f"warning: {text}")


def last_line(folder: Path, config: Config) -> str:
    """How many updates of a run were empty and why, or that its groups were all tied; "" if
    neither."""
    rows = read_rows(folder / METRICS)
    if not rows:
        return ""
    updates, empty = (rows[-1].get(name, 0) for name in (UPDATES, EMPTY_UPDATES))
    if not empty:
        return nothing_trained(rows, config)
    before = [0, *(row[EMPTY_UPDATES] for row in rows)]
    some = [row for row, known in zip(rows, before, strict=False) if row[EMPTY_UPDATES] > known]
    return f"{empty} of {updates} updates were empty: {why_empty(some, config)}"


def nothing_trained(rows: Sequence[Row], config: Config) -> str:
    """What none of these rounds had, "" if one of them had something to train on."""
    if all(row["rows_kept"] == 0 for row in rows):
        why = why_empty(rows, config)
        return f"all updates of {len(rows)} rounds are empty ({EMPTY_UPDATES}): {why}"
    if config.algo.needs.group_size > 1 and all(row[TIED] == 1 for row in rows):
        return f"nothing prefers one sample to another in {len(rows)} rounds: {ties(rows, config)}"
    return ""


def why_empty(rows: Sequence[Row], config: Config) -> str:
    """The causes in these rounds, each with its metric and key."""
    masked = mean(rows, MASKED)
    causes = []
    if masked:
        causes.append(
            f"{masked:.0%} of the samples reached {response_key(config)}="
            f"{response_tokens(config)} and are masked "
            f"({MASKED}): raise it, or pass run.mask_truncated=false"
        )
    if masked < 1 and mean(rows, TIED):
        causes.append(ties(rows, config))
    return "; ".join(causes) or (
        f"algo={config.algo.name} keeps no sample (rows_kept): pass another reward or algorithm"
    )


def ties(rows: Sequence[Row], config: Config) -> str:
    """The share of groups of equal rewards, with what may make them differ."""
    return (
        f"{mean(rows, TIED):.0%} of the groups have equal rewards ({TIED}) under reward="
        f"{config.reward.name}: pass a reward that differs between samples of a prompt, easier or "
        f"harder prompts, or more samples than run.group_size={config.run.group_size}"
    )


def mean(rows: Sequence[Row], name: str) -> float:
    """Of a metric; 0 in rounds that do not have it."""
    return float(sum(row.get(name, 0.0) for row in rows)) / len(rows)
