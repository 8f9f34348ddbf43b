"""rollouts.jsonl: some of the samples that each round was trained on (tracker.samples)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import ROLLOUTS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Group


@dataclass(frozen=True)
class RolloutSample:
    """A sample that a round was trained on: a row of rollouts.jsonl.

    round: from 0, as in metrics.jsonl. updates: optimizer updates before the round. prompt_id:
    number of the prompt in the run. uid: of the task's example. sample: number in its group.
    credit: mean over the response tokens of what the algorithm gave them. is_kept: whether any
    update used the sample. version: oldest weights that wrote it; newest_version: those of its last
    token. lag_rounds, lag_updates: age of the oldest weights when the round began. tokens: length
    of the response. finish: eos, or length for the limit. steps: (last token, reward) of each step
    that was rewarded. turns: the texts of an episode with their writers; those of the policy with
    the reward of the turn, log-probs of the tokens, and the versions that wrote first and last.
    """

    round: int
    updates: int
    prompt_id: int
    uid: str
    sample: int
    prompt: str
    response: str
    reward: float
    credit: float
    is_kept: bool
    version: int
    newest_version: int
    lag_rounds: int
    lag_updates: int
    tokens: int
    finish: str
    steps: list[list[float]]
    turns: list[dict[str, Any]] = field(default_factory=list)

    @property
    def num_turns(self) -> int:
        """Turns of the policy in an episode; 0 without one, whose text has no reward of its own."""
        return sum("reward" in turn for turn in self.turns)

    def row(self) -> dict[str, Any]:
        """The sample as a row of the file."""
        return asdict(self)


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
