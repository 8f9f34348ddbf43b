"""Samples of several turns: a generator writes the actions, environments answer between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from rlhf_lab.rollout.generators.conversation import Conversation, Conversations
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.open_episode import OpenEpisode, episode_limits
from rlhf_lab.rollout.generators.rows import Rows
from rlhf_lab.tasks.environment import Episodic
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Finish, Group, Prompt

Seed = Callable[[int, int], int]


class EpisodeGenerator:
    """Plays the episodes of a chunk, each at its own pace: none waits for the turn of another.

    What was sampled is never decoded and encoded again: contexts are the tokens themselves. The
    random number of a token is keyed by prompt, sample, and its place among the policy's tokens.
    seed(prompt id, sample number): of the environment. options: what environments may take. The
    first episode of each chunk is played again by its actions alone, to find environments that are
    no function of seed and actions; so are those that a later version continues.
    """

    def __init__(
        self,
        writer: HFGenerator,
        tokenizer: Any,
        task: Episodic,
        seed: Seed,
        options: EpisodeOptions,
    ) -> None:
        self._writer = writer
        self._tokenizer = tokenizer
        self._task = task
        self._seed = seed
        self._limits = episode_limits(task, writer.max_new_tokens)
        self._calls = EnvironmentCalls(options)
        self._tools = options.tool_times

    @property
    def is_float32(self) -> bool:
        """See HFGenerator."""
        return self._writer.is_float32

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Episodes of every prompt of the chunk, K each."""
        samples, size = list(chunk.samples), chunk.group_size
        stop = chunk.stop(self._limits.turns)
        places = [n for n, sample in enumerate(samples) if sample.finish is Finish.unfinished]
        episodes = [self._episode(chunk.prompts[n // size], n % size) for n in places]
        talks = Conversations(
            [Conversation(episode, self._tokenizer, stop) for episode in episodes], self._calls
        )
        talks.begin()
        for row, place in enumerate(places):
            sample = samples[place]
            if sample.episode:
                talks.repeat(row, sample, sample.episode)
        room = max(episode.room_of_turns(stop) for episode in episodes)
        starts = [len(episode.tokens) for episode in episodes]
        self._writer.converse(feed, self._rows(episodes, chunk), talks, room)
        for episode, start in zip(episodes, starts, strict=True):
            episode.count_observed(start)
        episodes[0].require_repeatable(self._task.environment(), self._calls)
        for episode, place in zip(episodes, places, strict=True):
            samples[place] = episode.sample()
        return chunk.grouped(samples)

    def report(self) -> GeneratorReport:
        """That of the generator of the actions."""
        return self._writer.report()

    def _episode(self, prompt: Prompt, number: int) -> OpenEpisode:
        """An episode before its environment is reset. number: of the sample in its group."""
        return OpenEpisode(
            prompt,
            number,
            self._task.environment(),
            self._seed(prompt.id, number),
            self._limits,
            self._task.name,
            self._tools,
        )

    def _rows(self, episodes: Sequence[OpenEpisode], chunk: Chunk) -> Rows:
        """The rows of the next actions. Samples of a prompt share it where no text stands behind
        any, as those of one turn do."""
        is_new = not any(episode.observed or episode.tokens for episode in episodes)
        repeats = chunk.group_size if is_new else 1
        texts = [episode.context for episode in episodes[::repeats]]
        if not is_new:
            for episode, text in zip(episodes, texts, strict=True):
                episode.count_context(len(text))
        is_greedy = [episode.number == chunk.group_size - 1 for episode in episodes]
        return Rows(
            texts=texts,
            repeats=repeats,
            number_B=torch.arange(len(episodes)),
            start=episodes[0].turns,
            uniform_BT=torch.from_numpy(self._drawn(episodes)).to(self._writer.device),
            is_greedy_B=(
                torch.tensor(is_greedy, device=self._writer.device) if chunk.greedy else None
            ),
        )

    def _drawn(self, episodes: Sequence[OpenEpisode]) -> np.ndarray:
        """A random number for each token that the policy may still write; 0 behind the last."""
        limit = self._limits.tokens
        width = limit - min(len(episode.tokens) for episode in episodes)
        drawn = []
        for episode in episodes:
            numbers = self._writer.uniforms(episode.prompt.id, episode.number, limit)
            own = numbers[len(episode.tokens) :]
            drawn.append(np.pad(own, (0, width - len(own))))
        return np.stack(drawn)
