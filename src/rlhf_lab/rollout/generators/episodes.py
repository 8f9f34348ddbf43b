"""Samples of several turns: a generator writes the actions, environments answer between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rlhf_lab.rollout.generators.conversation import Conversations, conversation_of
from rlhf_lab.rollout.generators.environment_calls import EnvironmentCalls
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions
from rlhf_lab.rollout.generators.open_episode import OpenEpisode, Stop, episode_limits
from rlhf_lab.tasks.environment import Episodic
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Finish, Group, Prompt

Seed = Callable[[int, int], int]


class Turns(Protocol):
    """Writes the actions of episodes by a generator, and hands each to its environment once it has
    ended."""

    @property
    def generator(self) -> Generator: ...

    @property
    def max_new_tokens(self) -> int: ...

    @property
    def is_float32(self) -> bool: ...

    def write(self, feed: WeightFeed, chunk: Chunk, talks: Conversations) -> None: ...


class EpisodeGenerator(Generator):
    """Plays the episodes of a chunk, each at its own pace: none waits for the turn of another.

    What was sampled is never decoded and encoded again: contexts are the tokens themselves.
    seed(prompt id, sample number): of the environment. options: what environments may take. The
    first episode of each chunk is played again by its actions alone, to find environments that are
    no function of seed and actions; so are those that a later version continues.
    """

    def __init__(
        self, writer: Turns, tokenizer: Any, task: Episodic, seed: Seed, options: EpisodeOptions
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
        """Whether its log-probs are the policy's up to rounding in float32."""
        return self._writer.is_float32

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Episodes of every prompt of the chunk, K each."""
        samples, size = list(chunk.samples), chunk.group_size
        stop = self._stop(chunk)
        places = [n for n, sample in enumerate(samples) if sample.finish is Finish.unfinished]
        episodes = [self._episode(chunk.prompts[n // size], n % size) for n in places]
        talks = Conversations(
            [conversation_of(one, self._task, self._tokenizer, stop) for one in episodes],
            self._calls,
        )
        talks.begin()
        for row, place in enumerate(places):
            sample = samples[place]
            if sample.episode:
                talks.repeat(row, sample, sample.episode)
        try:
            self._writer.write(feed, chunk, talks)
        except Exception:
            # No environment is left at work behind an error.
            self._calls.drop()
            raise
        episodes[0].require_repeatable(self._task.environment(), self._calls)
        for episode, place in zip(episodes, places, strict=True):
            samples[place] = episode.sample()
        return chunk.grouped(samples)

    def report(self) -> GeneratorReport:
        """Of the generator that writes the actions."""
        return self._writer.generator.report()

    def close(self) -> None:
        """End the processes that this generator started."""
        self._writer.generator.close()

    def _stop(self, chunk: Chunk) -> Stop:
        turns, tokens = self._limits.turns, self._limits.tokens
        if chunk.stops_by_tokens:
            return Stop(turns, chunk.stop(tokens))
        return Stop(chunk.stop(turns), tokens)

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
