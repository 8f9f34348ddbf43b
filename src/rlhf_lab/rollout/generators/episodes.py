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
from rlhf_lab.types.samples import Episode, Finish, Group, Prompt, Sample

Seed = Callable[[int, int], int]


class EpisodeGenerator:
    """Plays the episodes of a chunk: all that still go on write their next action together.

    What was sampled is never decoded and encoded again: contexts are the tokens themselves. The
    random number of a token is keyed by prompt, sample, and its place among the policy's tokens.
    seed(prompt id, sample number): of the environment. The first episode of each chunk is played
    again by its actions alone, to find environments that are no function of seed and actions; so
    are those that a later version continues.
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
        """Episodes of every prompt of the chunk, K each. Weights are read once for each turn."""
        samples, size = list(chunk.samples), chunk.group_size
        episodes = {
            place: self._begun(chunk.prompts[place // size], place % size, sample)
            for place, sample in enumerate(samples)
            if sample.finish is Finish.unfinished
        }
        stop = chunk.stop(self._limits.turns)
        while playing := [one for one in episodes.values() if one.is_open and one.turns < stop]:
            weights = feed.at(playing[0].turns)
            written = self._writer.write(weights, self._rows(playing, chunk))
            cells = zip(playing, written.token_BT.tolist(), written.logp_BT.tolist(), strict=True)
            for episode, tokens, logps in cells:
                self._play(episode, tokens, logps, written.versions)
        next(iter(episodes.values())).require_repeatable(self._task.environment())
        for place, episode in episodes.items():
            samples[place] = episode.sample()
        return chunk.grouped(samples)

    def report(self) -> GeneratorReport:
        """That of the generator of the actions."""
        return self._writer.report()

    def _begun(self, prompt: Prompt, number: int, sample: Sample) -> OpenEpisode:
        """An episode before its first action, or with the turns of a sample that has begun."""
        seed = self._seed(prompt.id, number)
        environment = self._task.environment()
        episode = OpenEpisode(prompt, number, environment, seed, self._limits, self._task.name)
        text = episode.begin()
        episode.observe(text, encoded(self._tokenizer, text))
        if sample.episode:
            self._repeat(episode, sample, sample.episode)
        return episode

    def _repeat(self, episode: OpenEpisode, sample: Sample, begun: Episode) -> None:
        """Play the turns of a sample that has begun."""
        versions = sample.versions or (sample.version,) * len(sample.tokens)
        start = 0
        for last, _ in begun.turns:
            turn = slice(start, last + 1)
            self._play(episode, sample.tokens[turn], sample.logps[turn], versions[turn])
            start = last + 1
        episode.reread = begun.reread_tokens
        episode.require_same(sample)

    def _rows(self, playing: Sequence[OpenEpisode], chunk: Chunk) -> Rows:
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
            start=0,
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
