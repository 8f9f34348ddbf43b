"""Turns of episodes by a transformers model: rows that go on by themselves in one batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rlhf_lab.rollout.generators.conversation import Conversations
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.open_episode import OpenEpisode
from rlhf_lab.rollout.generators.rows import Rows
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport


class HFTurns:
    """Writes the turns of a chunk's episodes; see TurnWriter. The random number of a token is keyed
    by prompt, sample, and its place among the policy's tokens."""

    def __init__(self, writer: HFGenerator) -> None:
        self._writer = writer

    @property
    def max_new_tokens(self) -> int:
        """Tokens of an episode that the policy may write."""
        return self._writer.max_new_tokens

    @property
    def is_float32(self) -> bool:
        """See HFGenerator."""
        return self._writer.is_float32

    def write(self, feed: WeightFeed, chunk: Chunk, talks: Conversations) -> None:
        """Write all episodes until they end or stop, and count what was read for them."""
        episodes = talks.episodes
        room = max(talk.episode.room_until(talk.stop) for talk in talks.open_ones)
        starts = [len(episode.tokens) for episode in episodes]
        self._writer.converse(feed, self._rows(episodes, chunk), talks, room)
        for episode, start in zip(episodes, starts, strict=True):
            episode.count_observed(start)

    def report(self) -> GeneratorReport:
        """That of the model's generator."""
        return self._writer.report()

    def close(self) -> None:
        """Nothing was started."""

    def _rows(self, episodes: Sequence[OpenEpisode], chunk: Chunk) -> Rows:
        """The rows of the next actions. Samples of a prompt share it where no text stands behind
        any, as those of one turn do."""
        is_new = not any(episode.observed or episode.tokens for episode in episodes)
        repeats = chunk.group_size if is_new else 1
        texts = [episode.context for episode in episodes[::repeats]]
        if not is_new:
            for episode, text in zip(episodes, texts, strict=True):
                episode.count_context(len(text))
        is_greedy = [episode.is_greedy(chunk) for episode in episodes]
        return Rows(
            texts=texts,
            repeats=repeats,
            number_B=torch.arange(len(episodes)),
            start=len(episodes[0].tokens) if chunk.stops_by_tokens else episodes[0].turns,
            uniform_BT=torch.from_numpy(self._drawn(episodes)).to(self._writer.device),
            is_greedy_B=(
                torch.tensor(is_greedy, device=self._writer.device) if chunk.greedy else None
            ),
        )

    def _drawn(self, episodes: Sequence[OpenEpisode]) -> np.ndarray:
        """A random number for each token that the policy may still write; 0 behind the last."""
        limit = self.max_new_tokens
        width = limit - min(len(episode.tokens) for episode in episodes)
        drawn = []
        for episode in episodes:
            numbers = self._writer.uniforms(episode.prompt.id, episode.number, limit)
            own = numbers[len(episode.tokens) :]
            drawn.append(np.pad(own, (0, width - len(own))))
        return np.stack(drawn)
