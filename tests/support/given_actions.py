"""Episodes of given actions, of which every token is known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.rows import Rows, WrittenTokens
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Group
from tests.support.environments import EOS, Pieces, Play, ids, player, prompt


class Given:
    """A writer whose every call writes known actions, one a row, up to its random numbers."""

    device = torch.device("cpu")
    length, decode = HFGenerator.length, HFGenerator.decode
    _tokenizer = Pieces()

    def __init__(self, calls: Sequence[Sequence[Sequence[int]]], length: int = 20) -> None:
        self.calls, self.max_new_tokens = list(calls), length
        self.rows: list[Rows] = []

    def uniforms(self, prompt: int, sample: int, count: int) -> np.ndarray:
        return uniforms(5, prompt, sample, count)

    def report(self) -> GeneratorReport:
        return GeneratorReport()

    def write(self, feed: WeightFeed, rows: Rows) -> WrittenTokens:
        self.rows.append(rows)
        version = feed.at(rows.start).version
        actions = self.calls.pop(0)
        assert len(actions) == len(rows.number_B)
        width = min(max(map(len, actions)), rows.uniform_BT.shape[1])
        cut = [[*action, *[EOS] * width][:width] for action in actions]
        logps = [[-float(place + 1) for place in range(width)] for _ in cut]
        return WrittenTokens(torch.tensor(cut), torch.tensor(logps), [version] * width)


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
