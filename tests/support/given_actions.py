"""Episodes of given actions, of which every token is known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rlhf_lab.rollout.generators.rows import Rows
from rlhf_lab.rollout.generators.turn_writer import Talk
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Group
from tests.support.environments import EOS, Play, ids, player, prompt


class Given:
    """A writer of known actions: in each turn one for each row that goes on, cut at its room."""

    device = torch.device("cpu")

    def __init__(self, calls: Sequence[Sequence[Sequence[int]]], length: int = 20) -> None:
        self.calls, self.max_new_tokens = list(calls), length
        self.rows: list[Rows] = []

    def uniforms(self, prompt: int, sample: int, count: int) -> np.ndarray:
        return uniforms(5, prompt, sample, count)

    def report(self) -> GeneratorReport:
        return GeneratorReport()

    def converse(self, feed: WeightFeed, rows: Rows, talks: Sequence[Talk], room: int) -> None:
        self.rows.append(rows)
        version = feed.at(rows.start).version
        playing = list(talks)
        while playing:
            actions = self.calls.pop(0)
            assert len(actions) == len(playing)
            playing = [
                talk
                for talk, action in zip(playing, actions, strict=True)
                if answered(talk, action[: talk.room], version)
            ]


def answered(talk: Talk, tokens: Sequence[int], version: int) -> bool:
    """Whether the row of these tokens goes on."""
    logps = [-float(place + 1) for place in range(len(tokens))]
    return talk.answer(tokens, logps, [version] * len(tokens)) is not None


def played(
    task: Play, calls: Sequence[Sequence[Sequence[int]]], size: int = 1, length: int = 20
) -> Group:
    """The group of one prompt, with these actions in each call of the writer."""
    whole = Chunk(0, 0, (prompt(),), size)
    (group,) = player(task, Given(calls, length)).generate(Weights(0, {}), whole)
    return group


def said(text: str) -> list[int]:
    """A finished action."""
    return [*ids(text), EOS]
