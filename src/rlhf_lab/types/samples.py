"""Prompts, samples and groups: all that a reward needs.

Imports no torch, so that child processes of time-limited rewards start at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, Self, TypeVar

# The key of `Example.hidden` that names the task of a row of a mixture.
MIXED_TASK = "mixture/task"
Steps = tuple[tuple[int, float], ...]
# The writers of an episode's texts.
POLICY, ENVIRONMENT = "policy", "environment"
# The version of a sample that no version of the run wrote: it has no lag.
OFFLINE = -1


class Whole(Protocol):
    """An int, or a tensor of whole numbers."""

    def __rsub__(self, other: int, /) -> Self: ...
    def __mul__(self, other: int, /) -> Self: ...
    def __add__(self, other: int, /) -> Self: ...


Lag = TypeVar("Lag", bound=Whole)


def lag_in_rounds(round_: int, version: Lag) -> Lag:
    """Rounds from the weight version that wrote a sample to the round that trains on it. version:
    not OFFLINE."""
    return round_ - version


def lag_in_updates(rounds: Lag, updates_per_round: int, done: int = 0) -> Lag:
    """The same in optimizer steps, when `done` of the round's are made."""
    return rounds * updates_per_round + done


class Split(StrEnum):
    """Part of a task's data: the policy is trained on train and evaluated on the others."""

    train = "train"
    validation = "validation"
    test = "test"


class Finish(StrEnum):
    """Why a sample ended: with the end token (eos) or at the response limit (length).

    unfinished: a segment of a partial rollout, to be continued; the training loop never gets one.
    """

    eos = "eos"
    length = "length"
    unfinished = "unfinished"


@dataclass(frozen=True)
class Example:
    """One row of a task.

    prompt + reference is a full training text. hidden: what only judges and verifiers see.
    messages: (role, text) pairs of a chat, rendered by the model's chat template instead of the
    prompt; empty for plain prompts. columns: those of its row that a reward function asks for.
    """

    uid: str
    prompt: str
    reference: str
    hidden: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[tuple[str, str], ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prompt:
    """An example in a run's stream of prompts. id: its number there, which keys its randomness."""

    id: int
    tokens: tuple[int, ...]
    example: Example


@dataclass(frozen=True)
class Episode:
    """What an environment did between the turns of a sample.

    observed: (number of response tokens before it, its tokens) of each observation that was read.
    turns: (last response token, reward) of each turn. transcript: the texts of all actions and
    observations, each behind its writer, POLICY or ENVIRONMENT. info: sums over the turns of the
    environment's own numbers. is_done: whether the environment ended it, and not a limit.
    read_tokens: tokens that generation read besides the prompt of the group: observations, and all
    that stood before where a version began to write. waits: virtual seconds behind each turn that
    has an observation, until it was there; empty where that takes none. is_late: it ended because
    its environment took too long.
    """

    observed: tuple[tuple[int, tuple[int, ...]], ...] = ()
    turns: Steps = ()
    transcript: tuple[tuple[str, str], ...] = ()
    info: Mapping[str, float] = field(default_factory=dict)
    is_done: bool = False
    read_tokens: int = 0
    waits: tuple[float, ...] = ()
    is_late: bool = False

    @property
    def reward(self) -> float:
        """The sum over its turns."""
        return sum(reward for _, reward in self.turns)

    @property
    def observed_tokens(self) -> int:
        """Tokens of all observations."""
        return sum(len(tokens) for _, tokens in self.observed)


@dataclass(frozen=True)
class Sample:
    """A completion: response tokens (with the end token, if written), log-probs and versions.

    logps: natural, of each token under the policy that wrote it, at the sampling temperature.
    version: that policy's weight version. versions: one per token if the weights changed midway;
    `version` is then the first and oldest.
    episode: of a sample of several turns. Its response tokens are those of all actions, each with
    its end token, and `text` is the last action; what the policy read between them is in
    `Episode.observed`, so that whatever is counted of response tokens is of the policy's own.
    An offline sample comes from outside of the run: its logps are NaN, which the loop replaces by
    the reference's, and its version is 0, or OFFLINE in rounds that have samples of the run too.
    """

    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    version: int
    finish: Finish
    text: str
    versions: tuple[int, ...] = ()
    episode: Episode | None = None

    def continued(
        self,
        tokens: Sequence[int],
        logps: Sequence[float],
        versions: Sequence[int],
        finish: Finish,
        text: str,
    ) -> Sample:
        """This sample with more tokens. text: decoded from all tokens, old and new."""
        before = self.versions or (self.version,) * len(self.tokens)
        all_versions = (*before, *versions)
        return Sample(
            tokens=(*self.tokens, *tokens),
            logps=(*self.logps, *logps),
            version=all_versions[0],
            finish=finish,
            text=text,
            versions=() if all_versions[0] == all_versions[-1] else all_versions,
            episode=self.episode,
        )

    @property
    def steps(self) -> int:
        """Steps of its generation: tokens, those of observations included."""
        observed = self.episode.observed_tokens if self.episode else 0
        return len(self.tokens) + observed

    @property
    def num_turns(self) -> int:
        """Turns of its episode so far; 0 without one."""
        return len(self.episode.turns) if self.episode else 0

    @property
    def turn_ends(self) -> Iterator[int]:
        """Steps of its generation at the end of each turn of an episode."""
        episode = self.episode or Episode()
        for last, _ in episode.turns:
            observed = sum(len(tokens) for place, tokens in episode.observed if place <= last)
            yield last + 1 + observed

    @property
    def answer(self) -> tuple[int, ...]:
        """The tokens of `text`: those of an episode's last action, or all."""
        turns = self.episode.turns if self.episode else ()
        return self.tokens[turns[-2][0] + 1 :] if len(turns) > 1 else self.tokens

    def pieces(self) -> Iterator[tuple[bool, tuple[int, ...]]]:
        """What stands behind the prompt, in order: whether the environment wrote it, and tokens."""
        start = 0
        for end, tokens in self.episode.observed if self.episode else ():
            if end > start:
                yield False, self.tokens[start:end]
            yield True, tokens
            start = end
        if start < len(self.tokens):
            yield False, self.tokens[start:]

    @property
    def all_tokens(self) -> tuple[int, ...]:
        """Everything that stands behind the prompt: the policy's tokens and the environment's."""
        return tuple(token for _, tokens in self.pieces() for token in tokens)

    @property
    def newest_version(self) -> int:
        """The version that wrote the last token."""
        return self.versions[-1] if self.versions else self.version

    @property
    def is_offline(self) -> bool:
        """Whether it comes from outside of the run, without known log-probs."""
        return any(map(math.isnan, self.logps))


# A sample before its first token.
UNBEGUN = Sample((), (), 0, Finish.unfinished, "")


@dataclass(frozen=True)
class Group:
    """The samples of one prompt, with a proxy reward each; no rewards if it could not be scored.

    step_rewards: of each sample, (last token of a step, its reward) pairs, which are part of
    the sample's reward; empty without step rewards.
    """

    prompt: Prompt
    samples: tuple[Sample, ...]
    rewards: tuple[float, ...] = ()
    step_rewards: tuple[Steps, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether no sample is left to be continued."""
        return all(sample.finish is not Finish.unfinished for sample in self.samples)

    def scored(self, rewards: Sequence[float], steps: Sequence[Steps] = ()) -> Group:
        """The group with one reward per sample, or none if it could not be scored."""
        for column in (rewards, steps):
            if column and len(column) != len(self.samples):
                raise ValueError(f"{len(column)} rewards for {len(self.samples)} samples")
        return replace(self, rewards=tuple(rewards), step_rewards=tuple(steps))
