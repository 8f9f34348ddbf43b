"""An episode while it is generated: the policy's actions, and the environment's answers to them."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import NamedTuple

from rlhf_lab.rollout.generators.environment_calls import Call, EnvironmentCalls, Spent
from rlhf_lab.rollout.generators.episode_options import AT_ONCE, ToolTimes
from rlhf_lab.tasks.environment import Environment, Turn
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import ENVIRONMENT, POLICY, Episode, Example, Finish, Prompt, Sample

# Reserved among the metrics `episode/*`.
OWN_NUMBERS = {
    *("turns", "done", "late", "observed_tokens", "virtual_seconds_tools"),
    *("lag_first_turn", "lag_last_turn"),
}


@contextmanager
def named(what: str) -> Iterator[None]:
    """What an environment raises gets a note of where that was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {what}")
        raise


def place_of(name: str, example: Example, turn: int) -> str:
    """What an error is about."""
    return f"task={name}, row {example.uid}, turn {turn}"


def first_of(environment: Environment, example: Example, seed: int, name: str) -> str:
    """What the environment shows before the first action. Raises UserError if it is no text."""
    place = place_of(name, example, 1)
    with named(f"reset of the environment of {place}"):
        first = environment.reset(example, seed)
    if not isinstance(first, str):
        raise UserError(
            f"{place}: reset returned {type(first).__name__}: return the text "
            "that the policy reads before its first action, '' for none"
        )
    return first


def turn_of(environment: Environment, action: str, finished: bool, place: str) -> Turn:
    """What the environment makes of an action. Raises UserError if it is no turn."""
    with named(f"the environment of {place}"):
        turn: object = environment.step(action, finished)
    if not isinstance(turn, Turn):
        raise UserError(
            f"{place}: step returned {type(turn).__name__}: return rlhf_lab.tasks.environment.Turn"
        )
    if not isinstance(turn.observation, str):
        raise UserError(f"{place}: the observation is no text: {turn.observation!r}")
    if own := OWN_NUMBERS & set(turn.info):
        raise UserError(
            f"{place}: info has {min(own)}, which every episode has: choose another name"
        )
    for name, value in (("reward", turn.reward), *turn.info.items()):
        if not isinstance(value, Real) or not math.isfinite(value):
            raise UserError(f"{place}: {name} is {value!r}: pass a finite number")
    return turn


class Said(NamedTuple):
    """An action: its text, and whether it ended with the end token."""

    text: str
    finished: bool


class Played(NamedTuple):
    """An action, and what came of it; None where the environment was too late."""

    said: Said
    turn: Turn | None


@dataclass(frozen=True)
class Limits:
    """Of an episode: turns, the policy's tokens of all turns and of one, and tokens of an
    observation."""

    turns: int
    tokens: int
    turn_tokens: int
    observation_tokens: int


class Stop(NamedTuple):
    """Where nothing more is written for now: turns played, and the policy's tokens of all turns,
    whichever is reached first."""

    turns: int
    tokens: int


def episode_limits(task: Task, max_tokens: int) -> Limits:
    """The limits of a task's episodes. max_tokens: of the policy, over all turns."""
    return Limits(task.max_turns, max_tokens, task.max_turn_tokens, task.max_observation_tokens)


@dataclass
class OpenEpisode:
    """One sample of a prompt. number: its number in its group. name: of the task, for errors.
    tools: virtual seconds that observations take. spent: real seconds of its calls."""

    prompt: Prompt
    number: int
    environment: Environment
    seed: int
    limits: Limits
    name: str
    tools: ToolTimes = AT_ONCE
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    observed: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    played: list[Played] = field(default_factory=list)
    rewards: list[tuple[int, float]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    transcript: list[tuple[str, str]] = field(default_factory=list)
    info: Counter[str] = field(default_factory=Counter)
    is_late: bool = False
    read: int = 0
    finish: Finish = Finish.unfinished
    first: str = ""
    spent: Spent = field(default_factory=Spent)

    @property
    def is_open(self) -> bool:
        return self.finish is Finish.unfinished

    def is_greedy(self, chunk: Chunk) -> bool:
        """Whether it takes the likeliest tokens."""
        return chunk.greedy and self.number == chunk.group_size - 1

    @property
    def is_done(self) -> bool:
        """Whether the environment ended it."""
        last = self.played[-1].turn if self.played else None
        return last is not None and last.is_done

    @property
    def turns(self) -> int:
        """Turns that were played."""
        return len(self.played)

    @property
    def begun(self) -> tuple[int, ...]:
        """Tokens of an action that an earlier segment ended within."""
        start = self.rewards[-1][0] + 1 if self.rewards else 0
        return tuple(self.tokens[start:])

    @property
    def room(self) -> int:
        """Tokens that the next action may have, or that the begun one may still get."""
        left = self.limits.tokens - len(self.tokens)
        return min(self.limits.turn_tokens - len(self.begun), left)

    def room_until(self, stop: Stop) -> int:
        """Tokens that may be written and observed until then; each turn has a token at least."""
        written = stop.tokens - len(self.tokens)
        return written + min(stop.turns - self.turns, written) * self.limits.observation_tokens

    @property
    def context(self) -> tuple[int, ...]:
        """Tokens of the prompt and of all that stands behind it."""
        return (*self.prompt.tokens, *self.sample().all_tokens)

    def require_same(self, sample: Sample) -> None:
        """Raise UserError where the actions of a sample did not bring its episode to where the
        sample stands."""
        if self.sample() != sample:
            raise self._not_repeatable(self.turns, "step")

    def count_context(self, length: int) -> None:
        """Count the tokens that the prefill of the next action reads. The prompt is counted once
        for its group, where it is read first."""
        is_prompt_new = not self.tokens and self.number == 0
        self.read += length - len(self.prompt.tokens) * is_prompt_new

    def count_observed(self, start: int) -> None:
        """Observations among the response tokens from `start` on were read with these."""
        self.read += sum(len(o) for place, o in self.observed if start < place < len(self.tokens))

    def reset(self) -> Call:
        """The call that begins it, which returns what the environment shows first."""
        given = (self.environment, self.prompt.example, self.seed, self.name)
        run = functools.partial(first_of, *given)
        return Call(self._place_of(1), run, is_needed=True, spent=self.spent)

    def observe(self, text: str, tokens: Sequence[int]) -> None:
        """Read an observation, which may be empty. Raises UserError for one that is too long."""
        if len(tokens) > self.limits.observation_tokens:
            place = self._place_of(max(1, self.turns))
            raise UserError(
                f"{place}: an observation has {len(tokens)} tokens, more than "
                f"task.max_observation_tokens={self.limits.observation_tokens}: raise it, or let "
                "the environment answer in fewer"
            )
        if tokens:
            self.observed.append((len(self.tokens), tuple(tokens)))
            self.transcript.append((ENVIRONMENT, text))

    def step(self, said: Said, is_repeated: bool = False) -> Call:
        """The call that takes an action to the environment, and returns its turn. is_repeated: to
        continue the episode behind it."""
        place = self._place_of(self.turns + 1)
        run = functools.partial(turn_of, self.environment, *said, place)
        return Call(place, run, is_repeated=is_repeated, spent=self.spent)

    def write(self, tokens: Sequence[int], logps: Sequence[float], versions: Sequence[int]) -> None:
        """Take tokens of an action, which need not end it."""
        self.tokens += tokens
        self.logps += logps
        self.versions += versions

    def act(
        self,
        said: Said,
        turn: Turn | None,
        tokens: Sequence[int],
        logps: Sequence[float],
        versions: Sequence[int],
    ) -> str | None:
        """Take an action, with its tokens behind those of `begun`, and its turn; None if that came
        too late. Returns the observation that follows; None at the episode's end."""
        self.write(tokens, logps, versions)
        self.played.append(Played(said, turn))
        self.transcript.append((POLICY, said.text))
        self.rewards.append((len(self.tokens) - 1, float(turn.reward) if turn else 0.0))
        if turn is None:
            self.is_late = True
            self.finish = Finish.length
            return None
        self.info.update({name: float(value) for name, value in turn.info.items()})
        is_last = self.turns == self.limits.turns or not self.room or not said.finished
        if turn.is_done and said.finished:
            self.finish = Finish.eos
        elif turn.is_done or is_last or not self._waits_for_observation():
            self.finish = Finish.length
        return turn.observation if self.is_open else None

    def _waits_for_observation(self) -> bool:
        """Let the virtual seconds of an observation pass. Returns whether it comes in time."""
        if not self.tools.median:
            return True
        wait = self.tools.seconds(self.seed, self.turns)
        room = self.tools.deadline - sum(self.waits)
        self.is_late = bool(self.tools.deadline) and wait > room
        self.waits.append(room if self.is_late else wait)
        return not self.is_late

    def sample(self) -> Sample:
        """The sample as it is now."""
        versions = self.versions
        return Sample(
            tokens=tuple(self.tokens),
            logps=tuple(self.logps),
            version=versions[0] if versions else 0,
            finish=self.finish,
            text=self.played[-1].said.text if self.played else "",
            versions=() if len(set(versions)) < 2 else tuple(versions),
            episode=Episode(
                observed=tuple(self.observed),
                turns=tuple(self.rewards),
                transcript=tuple(self.transcript),
                info=dict(self.info),
                is_done=self.is_done,
                read_tokens=self.read,
                waits=tuple(self.waits),
                is_late=self.is_late,
            ),
        )

    def require_repeatable(self, environment: Environment, calls: EnvironmentCalls) -> None:
        """Play the episode again in a fresh environment. Raises UserError where the same actions
        have other consequences: samples could then not be repeated."""
        again = replace(self, environment=environment, played=[], spent=Spent())
        if calls.one(again.reset()) != self.first:
            raise self._not_repeatable(1, "reset")
        for number, played in enumerate(self.played, start=1):
            if played.turn is None:
                return
            turn = calls.one(again.step(played.said))
            if turn is None:
                return
            if turn != played.turn:
                raise self._not_repeatable(number, "step")
            again.played.append(played)

    def _not_repeatable(self, turn: int, what: str) -> UserError:
        return UserError(
            f"{self._place_of(turn)}: played again with the same seed and actions, {what} gave "
            "something else: an environment must be a function of the example, the seed and the "
            "actions; take its random numbers from the seed that reset gets"
        )

    def _place_of(self, turn: int) -> str:
        return place_of(self.name, self.prompt.example, turn)
