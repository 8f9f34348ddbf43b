"""Which finished chunks may come next, so that no chunk becomes older than it may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab.rollout.cluster.job import Job


@dataclass(frozen=True)
class Places:
    """Places that rounds have for chunks. version: of the present round. missing: its places that
    are not taken. per_round: places of each later round."""

    version: int
    missing: int
    per_round: int

    def until(self, round_: int) -> int:
        """Places up to the end of a round."""
        return self.missing + (round_ - self.version) * self.per_round


def able_to_come(jobs: Sequence[Job], places: Places, max_staleness: int | None) -> list[Job]:
    """The finished chunks that may come next.

    A chunk of version w must come in round w + max_staleness at the latest. Where the chunks of
    versions up to w fill all places until then, only they may come: earliest deadline first, with
    as much freedom as deadlines leave. The budget admits too few chunks for more than fill them.
    None: there are no deadlines.
    """
    finished = [job for job in jobs if job.is_finished]
    if max_staleness is None:
        return finished
    begun = Counter(job.version for job in jobs if job.is_started)
    count = 0
    for version in sorted(begun):
        count += begun[version]
        if count >= places.until(version + max_staleness):
            return [job for job in finished if job.version <= version]
    return finished
