"""A policy and an environment in turns: actions as tokens, observations as text that is encoded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.rollout.generators.open_episode import Limits, OpenEpisode
from rlhf_lab.tasks.chat_turns import refuse_first, turns_of_chat
from rlhf_lab.tasks.environment import Episodic
from rlhf_lab.types.samples import Episode, Prompt, Sample


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

    def answer(
        self, tokens: Sequence[int], logps: Sequence[float], versions: Sequence[int]
    ) -> Sequence[int] | None:
        """The environment's answer to an action, as tokens; None where nothing is written on."""
        action = self.tokenizer.decode(tokens, skip_special_tokens=True)
        finished = tokens[-1] == self.tokenizer.eos_token_id
        text = self.episode.act(action, finished, tokens, logps, versions)
        if text is None:
            return None
        observation = self.encode(text)
        self.episode.observe(text, observation)
        return observation if self.episode.turns < self.stop else None

    def repeat(self, sample: Sample, begun: Episode) -> None:
        """Play the turns of a sample that has begun. Raises UserError where they come out
        otherwise."""
        versions = sample.versions or (sample.version,) * len(sample.tokens)
        start = 0
        for last, _ in begun.turns:
            turn = slice(start, last + 1)
            self.answer(sample.tokens[turn], sample.logps[turn], versions[turn])
            start = last + 1
        self.episode.read = begun.read_tokens
        self.episode.require_same(sample)


def begun_conversation(
    task: Episodic,
    tokenizer: Any,
    prompt: Prompt,
    number: int,
    seed: int,
    limits: Limits,
    stop: int,
) -> Conversation:
    """A conversation before its first action, with what the environment shows then. number: of the
    sample in its group. seed: of the environment. In a chat observations are messages; raises
    UserError where one stands before the first action."""
    episode = OpenEpisode(prompt, number, task.environment(), seed, limits, task.name)
    text = episode.begin()
    refuse_first(task.name, prompt.example, text)
    plain = functools.partial(encoded, tokenizer)
    episode.observe(text, plain(text))
    turns = turns_of_chat(task, tokenizer, prompt.example)
    return Conversation(episode, tokenizer, stop, turns.tokens if turns else plain)


def encoded(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text that stands within another."""
    tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"] if text else []
    return tokens
