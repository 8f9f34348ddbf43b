"""A policy and an environment in turns: actions as tokens, observations as text that is encoded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlhf_lab.rollout.generators.environment_calls import BegunCall, EnvironmentCalls
from rlhf_lab.rollout.generators.open_episode import OpenEpisode, Said
from rlhf_lab.rollout.generators.turn_rows import Action
from rlhf_lab.tasks.chat_turns import refuse_first, turns_of_chat
from rlhf_lab.tasks.environment import Episodic, Turn
from rlhf_lab.types.samples import Episode, Sample


@dataclass(frozen=True)
class Conversation:
    """An episode and the tokenizer of its policy. stop: turns at which nothing more is written for
    now. encode: an observation as the tokens that stand behind an action."""

    episode: OpenEpisode
    tokenizer: Any
    stop: int
    encode: Callable[[str], Sequence[int]]

    @property
    def room(self) -> int:
        """Tokens that the next action may have."""
        return self.episode.room

    def read_first(self, text: str) -> None:
        """Read what the environment shows before the first action. Raises UserError for a text in
        a chat."""
        refuse_first(self.episode.name, self.episode.prompt.example, text)
        self.episode.first = text
        self.episode.observe(text, encoded(self.tokenizer, text))

    def said(self, action: Action) -> Said:
        """An action as the environment gets it."""
        text = self.tokenizer.decode(action.tokens, skip_special_tokens=True)
        return Said(text, action.tokens[-1] == self.tokenizer.eos_token_id)

    def take(self, said: Said, turn: Turn | None, action: Action) -> Sequence[int] | None:
        """Take an action and what came of it. Returns what is read next, None where nothing is
        written on."""
        text = self.episode.act(said, turn, action.tokens, action.logps, action.versions)
        if text is None:
            return None
        observation = self.encode(text)
        self.episode.observe(text, observation)
        return observation if self.episode.turns < self.stop else None


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
        return self.ahead * max(talk.stop - talk.episode.turns for talk in self.open_ones)

    def room(self, row: int) -> int:
        """Tokens that the next action of a row may have."""
        return self.open_ones[row].room

    def ask(self, actions: Sequence[Action], are_repeated: bool = False) -> None:
        """Hand actions to their environments, without waiting for these. are_repeated: to continue
        episodes behind them."""
        said = [self.open_ones[action.row].said(action) for action in actions]
        steps = [
            self.open_ones[action.row].episode.step(one, are_repeated)
            for action, one in zip(actions, said, strict=True)
        ]
        for action, one, call in zip(actions, said, self.calls.begin(steps), strict=True):
            self.asked[action.row] = Asked(action, one, call)

    def answers(self, rows: Sequence[int]) -> list[Sequence[int] | None]:
        """The environments' answers to the actions of rows, as tokens; None where nothing is
        written on."""
        asked = [self.asked.pop(row) for row in rows]
        turns = self.calls.end([one.call for one in asked])
        return [
            self.open_ones[row].take(one.said, turn, one.action)
            for row, one, turn in zip(rows, asked, turns, strict=True)
        ]

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
        """Play the turns of a sample that has begun. Raises UserError where they come out
        otherwise, or a step is late: it was in time before."""
        versions = sample.versions or (sample.version,) * len(sample.tokens)
        start = 0
        for last, _ in begun.turns:
            turn = slice(start, last + 1)
            action = Action(row, sample.tokens[turn], sample.logps[turn], versions[turn])
            self.answer([action], are_repeated=True)
            start = last + 1
        episode = self.open_ones[row].episode
        episode.read = begun.read_tokens
        episode.require_same(sample)


def conversation_of(
    episode: OpenEpisode, task: Episodic, tokenizer: Any, stop: int
) -> Conversation:
    """The conversation of an episode before its first action. In a chat observations are
    messages."""
    turns = turns_of_chat(task, tokenizer, episode.prompt.example)
    encode = turns.tokens if turns else functools.partial(encoded, tokenizer)
    return Conversation(episode, tokenizer, stop, encode)


def encoded(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text that stands within another."""
    tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
    return tokens
