"""Whether a chunk that a round takes is exactly as old as the mode promises."""

from __future__ import annotations

from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_states import PendingChunk
from rlhf_lab.rollout.mode import Mode
from rlhf_lab.rollout.mode_choices import WhenStale
from rlhf_lab.rollout.partial_rollout import segments_of
from rlhf_lab.types.rollouts import Rollout
from rlhf_lab.types.samples import lag_in_rounds


def is_too_old(mode: Mode, rollout: Rollout, version: int) -> bool:
    """Whether the round of this version passes over a rollout as too old."""
    is_older = lag_in_rounds(version, rollout.version) > mode.max_staleness
    return is_older and mode.when_stale is WhenStale.drop


def check_lag(
    mode: Mode, budget: StalenessBudget, pending: PendingChunk, rollout: Rollout, version: int
) -> None:
    """Raise RuntimeError if the chunk's lag is not exactly what the mode promises."""
    lag = lag_in_rounds(version, rollout.version)
    allowed = range(mode.max_staleness + 1)
    is_timed = mode.uses_latest_weights or mode.is_replay
    # Chunks of a virtual cluster that a fork takes over may still wait, or be lost and begin anew.
    is_inherited = budget.is_inherited(pending.number) and not mode.is_virtual
    if is_inherited or not is_timed:
        expected = version - budget.version_of(pending.number)
        allowed = range(expected, expected + 1)
        if rollout.chunk.round != version and not is_timed:
            allowed = range(0)
    if not follows_its_segments(mode, pending, rollout):
        allowed = range(0)
    if lag not in allowed and not is_too_old(mode, rollout, version):
        raise RuntimeError(
            f"off-policy accounting broken: round {version} got chunk {rollout.chunk.index} "
            f"of round {rollout.chunk.round}, written by version {rollout.version}; the lag "
            f"must be in {list(allowed)}"
        )


def follows_its_segments(mode: Mode, pending: PendingChunk, rollout: Rollout) -> bool:
    """Whether the expected versions wrote the segments of a partial rollout."""
    steps, count = mode.segment_steps, len(rollout.segments)
    if not steps:
        return True
    promised = segments_of(rollout.chunk.round, pending.version, steps, count)
    return list(rollout.segments) == promised and rollout.is_finished
