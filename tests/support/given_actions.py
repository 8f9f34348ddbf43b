"""Episodes of given actions, of which every token is known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlhf_lab.rollout.generators.episodes import Action, Conversations
from rlhf_lab.rollout.generators.writers import Rows
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

    def converse(self, feed: WeightFeed, rows: Rows, talks: Conversations, room: int) -> None:
        self.rows.append(rows)
        version = feed.at(rows.start).version
        playing: list[int] = rows.number_B.tolist()
        while playing:
            said = self.calls.pop(0)
            assert len(said) == len(playing)
            actions = [
                action_of(row, tokens[: talks.room(row)], version)
                for row, tokens in zip(playing, said, strict=True)
            ]
            answers = talks.answer(actions)
            playing = [
                row for row, answer in zip(playing, answers, strict=True) if answer is not None
            ]


def action_of(row: int, tokens: Sequence[int], version: int) -> Action:
    """An action with log-probs of minus the place."""
    logps = [-float(place + 1) for place in range(len(tokens))]
    return Action(row, list(tokens), logps, [version] * len(tokens))


def played(
    task: Play,
    calls: Sequence[Sequence[Sequence[int]]],
    size: int = 1,
    length: int = 20,
    **options: Any,
) -> Group:
    """The group of one prompt, with these actions in each call of the writer. options: of
    episodes."""
    whole = Chunk(0, 0, (prompt(),), size)
    (group,) = player(task, Given(calls, length), **options).generate(Weights(0, {}), whole)
    return group


def said(text: str) -> list[int]:
    """A finished action."""
    return [*ids(text), EOS]
