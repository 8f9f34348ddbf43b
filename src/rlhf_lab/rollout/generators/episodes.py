"""Samples of several turns: a generator writes the actions, environments answer between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.open_episode import OpenEpisode, encoded, episode_limits
from rlhf_lab.rollout.generators.rows import Rows
from rlhf_lab.tasks.environment import Episodic
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Finish, Group

Seed = Callable[[int, int], int]


class EpisodeGenerator:
    """Plays the episodes of a chunk: all that still go on write their next action together.

    What was sampled is never decoded and encoded again: contexts are the tokens themselves. The
    random number of a token is keyed by prompt, sample, and its place among the policy's tokens.
    seed(prompt id, sample number): of the environment. The first episode of each chunk is played
    again by its actions alone, to find environments that are no function of seed and actions.
    """

    def __init__(self, writer: HFGenerator, tokenizer: Any, task: Episodic, seed: Seed) -> None:
        self._writer = writer
        self._tokenizer = tokenizer
        self._task = task
        self._seed = seed
        self._limits = episode_limits(task, writer.max_new_tokens)

    @property
    def is_float32(self) -> bool:
        """See HFGenerator."""
        return self._writer.is_float32

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Episodes of every prompt of the chunk, K each."""
        episodes = [
            self._begun(chunk, place, number)
            for place in range(len(chunk.prompts))
            for number in range(chunk.group_size)
        ]
        step = 0
        while playing := [one for one in episodes if one.finish is Finish.unfinished]:
            rows = self._rows(playing, chunk, step)
            written = self._writer.write(feed, rows)
            step += written.token_BT.shape[1]
            cells = zip(playing, written.token_BT.tolist(), written.logp_BT.tolist(), strict=True)
            for episode, tokens, logps in cells:
                self._play(episode, tokens, logps, written.versions)
        episodes[0].require_repeatable(self._task.environment())
        return chunk.grouped([episode.sample() for episode in episodes])

    def report(self) -> GeneratorReport:
        """That of the generator of the actions."""
        return self._writer.report()

    def _begun(self, chunk: Chunk, place: int, number: int) -> OpenEpisode:
        """An episode before its first action."""
        prompt = chunk.prompts[place]
        seed = self._seed(prompt.id, number)
        environment = self._task.environment()
        episode = OpenEpisode(prompt, number, environment, seed, self._limits, self._task.name)
        text = episode.begin()
        episode.observe(text, encoded(self._tokenizer, text))
        return episode

    def _rows(self, playing: Sequence[OpenEpisode], chunk: Chunk, step: int) -> Rows:
        """The rows of the next actions. As long as no text stands behind any prompt, samples of a
        prompt share it, as those of one turn do."""
        is_first = not any(episode.observed or episode.tokens for episode in playing)
        repeats = chunk.group_size if is_first else 1
        texts = [episode.read for episode in playing[::repeats]]
        if not is_first:
            for episode, text in zip(playing, texts, strict=True):
                episode.count_read(len(text))
        is_greedy = [episode.number == chunk.group_size - 1 for episode in playing]
        return Rows(
            texts=texts,
            repeats=repeats,
            number_B=torch.arange(len(playing)),
            start=step,
            uniform_BT=torch.from_numpy(self._drawn(playing)).to(self._writer.device),
            is_greedy_B=(
                torch.tensor(is_greedy, device=self._writer.device) if chunk.greedy else None
            ),
        )

    def _drawn(self, playing: Sequence[OpenEpisode]) -> np.ndarray:
        """A random number for each token of the next actions; 0 where an action may not have it."""
        width = max(episode.room for episode in playing)
        drawn = []
        for episode in playing:
            start, end = len(episode.tokens), len(episode.tokens) + episode.room
            own = self._writer.uniforms(episode.prompt.id, episode.number, end)[start:]
            drawn.append(np.pad(own, (0, width - len(own))))
        return np.stack(drawn)

    def _play(
        self,
        episode: OpenEpisode,
        tokens: Sequence[int],
        logps: Sequence[float],
        versions: Sequence[int],
    ) -> None:
        """One action and the environment's answer to it."""
        length, finished = self._writer.length(tokens[: episode.room])
        own = tokens[:length]
        observation = episode.act(
            self._writer.decode(own), finished, own, logps[:length], versions[:length]
        )
        if observation is not None:
            episode.observe(observation, encoded(self._tokenizer, observation))
