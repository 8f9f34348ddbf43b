"""What the options of config group `mode` choose from."""

from __future__ import annotations

from enum import StrEnum


class ExecutorKind(StrEnum):
    """Where generation runs: in the trainer's time, in a thread, in a process of its own, or in the
    trainer's time on the clock of a virtual cluster."""

    inline = "inline"
    thread = "thread"
    process = "process"
    virtual = "virtual"


class WeightPolicy(StrEnum):
    """Which version writes a chunk: the one at its admission (reproducible), the latest one at its
    first token, the latest one at every token, that of a recorded schedule, or the one that a
    generator of a virtual cluster holds."""

    admission = "admission"
    latest = "latest"
    latest_per_token = "latest_per_token"
    recorded = "recorded"
    cluster = "cluster"


class WhenStale(StrEnum):
    """How max_staleness is enforced: generators wait, or samples that are too old are dropped."""

    wait = "wait"
    drop = "drop"


class OnFailure(StrEnum):
    """What happens when a generator process is killed, hangs or raises."""

    stop = "stop"
    restart = "restart"
