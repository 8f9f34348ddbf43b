"""Samples of several turns: a generator writes the actions, environments answer between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rlhf_lab.rollout.generators.environment_calls import BegunCall, EnvironmentCalls
from rlhf_lab.rollout.generators.episode_options import EpisodeOptions
from rlhf_lab.rollout.generators.open_episode import OpenEpisode, Said, Stop, episode_limits
from rlhf_lab.tasks.chat_turns import refuse_first, turns_of_chat
from rlhf_lab.tasks.environment import Turn
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.protocols import Generator, WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Episode, Finish, Group, Prompt, Sample
from rlhf_lab.types.text_frame import TextFrame


@dataclass(frozen=True)
class Action:
    """An action of a row. row: its number among all that were begun."""

    row: int
    tokens: Sequence[int]
    logps: Sequence[float]
    versions: Sequence[int]


@dataclass(frozen=True)
class Conversation:
    """An episode and the tokenizer of its policy. stop: where nothing more is written for now.
    encode: an observation as the tokens that stand behind an action."""

    episode: OpenEpisode
    tokenizer: Any
    stop: Stop
    encode: Callable[[str], Sequence[int]]

    @property
    def room(self) -> int:
        """Tokens that may be written before the next action ends, or the segment within it."""
        return min(self.episode.room, self.stop.tokens - len(self.episode.tokens))

    def read_first(self, text: str) -> None:
        """Read what the environment shows before the first action. Raises UserError for a text in
        a chat."""
        refuse_first(self.episode.name, self.episode.prompt.example, text)
        self.episode.first = text
        self.episode.observe(text, TextFrame(self.tokenizer).inside(text))

    def said(self, action: Action) -> Said:
        """An action as the environment gets it, with what an earlier segment wrote of it."""
        tokens = (*self.episode.begun, *action.tokens)
        return Said(TextFrame(self.tokenizer).text(tokens), self._has_end(action))

    def _has_end(self, action: Action) -> bool:
        return TextFrame(self.tokenizer).has_end(action.tokens)

    def is_cut(self, action: Action) -> bool:
        """Whether the segment ends within an action, which a later one continues."""
        end = len(self.episode.tokens) + len(action.tokens)
        has_room = len(action.tokens) < self.episode.room
        return end == self.stop.tokens and has_room and not self._has_end(action)

    def take(self, said: Said, turn: Turn | None, action: Action) -> Sequence[int] | None:
        """Take an action and what came of it. Returns what is read next, None where nothing is
        written on."""
        text = self.episode.act(said, turn, action.tokens, action.logps, action.versions)
        if text is None:
            return None
        observation = self.encode(text)
        self.episode.observe(text, observation)
        has_stopped = self.episode.turns == self.stop.turns or not self.room
        return None if has_stopped else observation


class Asked(NamedTuple):
    """An action that was handed to its environment."""

    action: Action
    said: Said
    call: BegunCall


@dataclass(frozen=True)
class Conversations:
    """The conversations of a chunk's rows. calls: makes the steps of their environments. asked: the
    actions by row that have no answer yet."""

    open_ones: Sequence[Conversation]
    calls: EnvironmentCalls
    asked: dict[int, Asked] = field(default_factory=dict)

    @property
    def episodes(self) -> list[OpenEpisode]:
        """The episode of each row."""
        return [talk.episode for talk in self.open_ones]

    def begin(self) -> None:
        """Reset all environments and read what they show."""
        firsts = self.calls.all([talk.episode.reset() for talk in self.open_ones])
        for talk, first in zip(self.open_ones, firsts, strict=True):
            talk.read_first(first)

    @property
    def ahead(self) -> int:
        """Decoding steps that others go on before an answer is read."""
        return self.calls.options.decode_ahead

    @property
    def idle_steps(self) -> int:
        """Decoding steps at most in which a row waits for answers."""
        return self.ahead * max(talk.stop.turns - talk.episode.turns for talk in self.open_ones)

    def room(self, row: int) -> int:
        """Tokens that the next action of a row may have."""
        return self.open_ones[row].room

    def ask(self, actions: Sequence[Action], are_repeated: bool = False) -> None:
        """Hand actions to their environments, without waiting for these. An action that its segment
        ends within is kept, and its environment is not called. are_repeated: to continue episodes
        behind them."""
        ended = []
        for action in actions:
            talk = self.open_ones[action.row]
            if talk.is_cut(action):
                talk.episode.write(action.tokens, action.logps, action.versions)
            else:
                ended.append(action)
        said = [self.open_ones[action.row].said(action) for action in ended]
        steps = [
            self.open_ones[action.row].episode.step(one, are_repeated)
            for action, one in zip(ended, said, strict=True)
        ]
        for action, one, call in zip(ended, said, self.calls.begin(steps), strict=True):
            self.asked[action.row] = Asked(action, one, call)

    def answers(self, rows: Sequence[int]) -> list[Sequence[int] | None]:
        """The environments' answers to the actions of rows, as tokens; None where nothing is
        written on."""
        asked = [self.asked.pop(row) for row in rows if row in self.asked]
        turns = self.calls.end([one.call for one in asked])
        taken = {
            one.action.row: self.open_ones[one.action.row].take(one.said, turn, one.action)
            for one, turn in zip(asked, turns, strict=True)
        }
        return [taken.get(row) for row in rows]

    def answered(self, for_one: bool) -> list[int]:
        """The rows whose answers are there. for_one: wait until one is. Clocks decide: this is for
        writers whose tokens do not depend on what is written beside them."""
        are_ended = self.calls.ended([one.call for one in self.asked.values()], for_one)
        return [row for row, is_ended in zip(self.asked, are_ended, strict=True) if is_ended]

    def answer(
        self, actions: Sequence[Action], are_repeated: bool = False
    ) -> list[Sequence[int] | None]:
        """The same for actions that are handed over now."""
        self.ask(actions, are_repeated)
        return self.answers([action.row for action in actions])

    def repeat(self, row: int, sample: Sample, begun: Episode) -> None:
        """Play the turns of a sample that has begun, and write what it has of the next action.
        Raises UserError where they come out otherwise, or a step is late: it was in time before."""
        versions = sample.versions or (sample.version,) * len(sample.tokens)
        start = 0
        for last, _ in begun.turns:
            turn = slice(start, last + 1)
            action = Action(row, sample.tokens[turn], sample.logps[turn], versions[turn])
            self.answer([action], are_repeated=True)
            start = last + 1
        episode = self.open_ones[row].episode
        episode.write(sample.tokens[start:], sample.logps[start:], versions[start:])
        episode.read = begun.read_tokens
        episode.require_same(sample)


def conversation_of(episode: OpenEpisode, task: Task, tokenizer: Any, stop: Stop) -> Conversation:
    """The conversation of an episode before its first action. In a chat observations are
    messages."""
    turns = turns_of_chat(task, tokenizer, episode.prompt.example)
    encode = turns.tokens if turns else TextFrame(tokenizer).inside
    return Conversation(episode, tokenizer, stop, encode)


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
        self, writer: Turns, tokenizer: Any, task: Task, seed: Seed, options: EpisodeOptions
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
