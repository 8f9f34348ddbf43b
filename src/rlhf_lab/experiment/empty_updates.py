"""What reports that a run trains nothing: a warning after its first rounds, and its last line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import response_key, response_tokens
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.types.data import Metrics

UPDATES, EMPTY = "total/updates", "total/updates_empty"
TIED, MASKED = "reward/groups_tied", "sample/masked"
# Rounds without anything to train on, from the start, after which a run warns.
FIRST_ROUNDS = 3
Row = Mapping[str, Any]


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
    updates, empty = (rows[-1].get(name, 0) for name in (UPDATES, EMPTY))
    if not empty:
        return nothing_trained(rows, config)
    before = [0, *(row[EMPTY] for row in rows)]
    some = [row for row, known in zip(rows, before, strict=False) if row[EMPTY] > known]
    return f"{empty} of {updates} updates were empty: {why_empty(some, config)}"


def nothing_trained(rows: Sequence[Row], config: Config) -> str:
    """What none of these rounds had, "" if one of them had something to train on."""
    if all(row["rows_kept"] == 0 for row in rows):
        return f"all updates of {len(rows)} rounds are empty ({EMPTY}): {why_empty(rows, config)}"
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
