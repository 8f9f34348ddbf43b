"""Rows of tasks and what is written after them: all that a judge needs, without torch.

So the process of a time limit, which needs no tensors, starts at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

Steps = tuple[tuple[int, float], ...]


class Split(StrEnum):
    """Part of a task's data. The policy is trained on train, judged on validation or test."""

    train = "train"
    validation = "validation"
    test = "test"


class Finish(StrEnum):
    """Why a sample ended: it wrote the end token, or it ran out of length.

    unfinished: it has not ended, and is continued by the next version; the loop never sees one.
    """

    eos = "eos"
    length = "length"
    unfinished = "unfinished"


@dataclass(frozen=True)
class Example:
    """One row of a task.

    prompt + reference is a full training text; `hidden` is what only judges and verifiers see.
    messages: (role, text) pairs of a chat, which the model's chat template renders in place of the
    prompt; none for a prompt that is read as it stands.
    """

    uid: str
    prompt: str
    reference: str
    hidden: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Prompt:
    """An example at its place in a run's prompt stream. `id` keys its randomness."""

    id: int
    tokens: tuple[int, ...]
    example: Example


@dataclass(frozen=True)
class Sample:
    """A completion: response tokens (the end token included, if written) and who wrote it.

    `logps` are natural-log probabilities of each token under the policy that wrote it, at the
    sampling temperature. `version` is that policy's weight version; `versions` has one per token
    if new weights came in the middle, and `version` is then the first, which is the oldest.
    Of a sample from outside of the run, the writer is unknown: `logps` are NaN, and `version` is 0,
    the run's start, which it counts as a sample of; the loop fills in the reference's log-probs.
    """

    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    version: int
    finish: Finish
    text: str
    versions: tuple[int, ...] = ()

    def continued(
        self,
        tokens: Sequence[int],
        logps: Sequence[float],
        versions: Sequence[int],
        finish: Finish,
        text: str,
    ) -> Sample:
        """This sample with more tokens, each with its log-prob and version. text: of all tokens."""
        before = self.versions or (self.version,) * len(self.tokens)
        wrote = (*before, *versions)
        return Sample(
            tokens=(*self.tokens, *tokens),
            logps=(*self.logps, *logps),
            version=wrote[0],
            finish=finish,
            text=text,
            versions=() if wrote[0] == wrote[-1] else wrote,
        )

    @property
    def newest_version(self) -> int:
        """The version that wrote the last token."""
        return self.versions[-1] if self.versions else self.version

    @property
    def is_offline(self) -> bool:
        """Whether it comes from outside of the run, so that its log-probs are unknown."""
        return any(map(math.isnan, self.logps))


# What a sample is before its first token.
UNBEGUN = Sample((), (), 0, Finish.unfinished, "")


@dataclass(frozen=True)
class Group:
    """The samples of one prompt with their proxy rewards (empty if not scored, or unscorable).

    step_rewards: for each sample (last token of a step, what the step earned), which is part of the
    sample's reward; empty where nobody looks at steps.
    """

    prompt: Prompt
    samples: tuple[Sample, ...]
    rewards: tuple[float, ...] = ()
    step_rewards: tuple[Steps, ...] = ()

    def scored(self, rewards: Sequence[float], steps: Sequence[Steps] = ()) -> Group:
        """The same group with one reward per sample, or with none if it could not be scored."""
        for given in (rewards, steps):
            if given and len(given) != len(self.samples):
                raise ValueError(f"{len(given)} rewards for {len(self.samples)} samples")
        return replace(self, rewards=tuple(rewards), step_rewards=tuple(steps))
