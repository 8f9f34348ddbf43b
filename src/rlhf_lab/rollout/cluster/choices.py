"""What the options of config group `cluster` choose from."""

from __future__ import annotations

from enum import StrEnum


class WeightUpdate(StrEnum):
    """How a generator takes over a new version: after all sequences that it writes have ended
    (drain), between two tokens with the cache of the old weights (in_flight), or between two tokens
    with everything read anew by the new weights (interrupt)."""

    drain = "drain"
    in_flight = "in_flight"
    interrupt = "interrupt"


class TakeOrder(StrEnum):
    """Which chunks a round is made of: those finished first, or the oldest prompts first."""

    completion = "completion"
    submission = "submission"
