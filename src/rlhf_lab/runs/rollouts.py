"""rollouts.jsonl: some of the samples that each round was trained on (tracker.samples)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from rlhf_lab.runs.folder import ROLLOUTS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.schema import RolloutSample
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Group


def read_rollouts(run: Path) -> list[RolloutSample]:
    """The samples that a run kept, oldest first; none if it kept none. A last line that a kill cut
    off is left out. Raises UserError on any other damaged line."""
    names = [column.name for column in fields(RolloutSample)]
    return [
        RolloutSample(**{name: row[name] for name in names if name in row})
        for row in read_rows(run / ROLLOUTS)
    ]


def chosen(groups: Sequence[Group], num: int, seed: int) -> Iterator[tuple[int, int]]:
    """(number of the group, number of the sample in it) of `num` samples, of as many prompts as
    there are. The choice follows from the prompts' ids, whatever order the groups are in."""
    if not num:
        return
    keys = {g.prompt.id: stable_hash(seed, "kept rollouts", g.prompt.id) for g in groups}
    order = sorted(range(len(groups)), key=lambda place: keys[groups[place].prompt.id])
    size = max((len(group.samples) for group in groups), default=0)
    places = ((one, turn) for turn in range(size) for one in order)
    for count, (one, turn) in enumerate(places):
        if count == num:
            return
        group = groups[one]
        yield one, (keys[group.prompt.id] + turn) % len(group.samples)
