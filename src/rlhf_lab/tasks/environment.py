"""Environments of episodes of several turns, and tasks that have one.

A complete environment, and all that a task needs for it:

    class Guess:
        def reset(self, example, seed):
            self.number = example.hidden["number"]
            return ""

        def step(self, action, finished):
            if not finished or not action.strip().isdigit():
                return Turn(is_done=True)
            guess = int(action)
            if guess == self.number:
                return Turn(reward=1.0, is_done=True, info={"found": 1})
            return Turn(" lower" if guess > self.number else " higher", info={"guesses": 1})

An episode is the prompt, then turns: the policy writes an action up to its end token, and reads the
observation behind it. The environment of an episode is a pure function of the example, the seed and
the actions: an episode is repeated by repeating its actions, and the generator does so for some of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from rlhf_lab.types.samples import Example, Split


@dataclass(frozen=True)
class Turn:
    """What an environment makes of an action.

    observation: the text that the policy reads next; nobody reads it where the episode is done.
    reward: of this turn; the reward of an episode is the sum over its turns. info: numbers that are
    summed over the turns of an episode, for metrics `episode/NAME`.
    """

    observation: str = ""
    reward: float = 0.0
    is_done: bool = False
    info: Mapping[str, float] = field(default_factory=dict)


class Environment(Protocol):
    """One episode at a time; each sample has an environment of its own."""

    def reset(self, example: Example, seed: int) -> str:
        """Begin an episode. Returns what the policy reads behind the prompt, '' for nothing."""
        ...

    def step(self, action: str, finished: bool) -> Turn:
        """The policy's next action. finished: whether it ends with the end token; one that does
        not was cut at a limit, and the episode ends with it."""
        ...


@runtime_checkable
class Episodic(Protocol):
    """A task whose prompts begin episodes of several turns.

    Its `max_response_tokens` bounds the policy's tokens of all turns together, max_turn_tokens
    those of one turn, its end token included, and max_observation_tokens those of an observation.
    """

    @property
    def name(self) -> str: ...

    @property
    def max_turns(self) -> int: ...

    @property
    def max_turn_tokens(self) -> int: ...

    @property
    def max_observation_tokens(self) -> int: ...

    def examples(self, split: Split) -> Sequence[Example]: ...

    def environment(self) -> Environment: ...

    def demonstration(self, example: Example) -> Sequence[str]:
        """The actions of an episode that SFT learns from; `judge` scores the last action alone."""
        ...
