"""How busy a machine is with other work, before anything is timed on it.

Ratios of a busy machine are not to be trusted: threads of one side may wait for a core that the
other side had to itself.
"""

from __future__ import annotations

import time
from pathlib import Path

from rlhf_lab.runs.provenance import usable_cores

STAT = Path("/proc/stat")
# Shares of a core that an idle desktop has anyway.
IDLE_CORES = 0.2


def counts(text: str) -> list[list[int]]:
    """The kernel's ticks of each core, by what it did: user, nice, system, idle, waiting, ..."""
    lines = [line.split() for line in text.splitlines()]
    return [
        [int(value) for value in words[1:9]]
        for words in lines
        if words and words[0].startswith("cpu") and words[0] != "cpu"
    ]


def busy_between(before: list[list[int]], after: list[list[int]]) -> float:
    """Cores that worked between two counts."""
    busy = 0.0
    for then, now in zip(before, after, strict=True):
        passed = [new - old for old, new in zip(then, now, strict=True)]
        if total := sum(passed):
            busy += 1.0 - (passed[3] + passed[4]) / total
    return busy


def busy_note(seconds: float = 1.0, stat: Path = STAT) -> str:
    """A sentence for the results, from what the cores do in the next second; "" for a machine that
    is free, or whose system has no count."""
    if not stat.is_file():
        return ""
    before = counts(stat.read_text(encoding="ascii"))
    time.sleep(seconds)
    return note(busy_between(before, counts(stat.read_text(encoding="ascii"))), usable_cores())


def note(busy: float, cores: int) -> str:
    if busy <= IDLE_CORES:
        return ""
    return (
        f"BUSY: other work held {busy:.1f} of {cores} cores when this began, so that its ratios "
        "are not to be trusted."
    )
