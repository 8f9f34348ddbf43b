"""Environments of episodes of several turns, and the metrics of episodes.

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
observation after it. The environment of an episode is a pure function of the example, the seed and
the actions: an episode is repeated by repeating its actions, and the generator does so for some of
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlhf_lab.types.data import Metrics
from rlhf_lab.types.samples import POLICY, Episode, Example, Sample


@dataclass(frozen=True)
class Turn:
    """What an environment makes of an action.

    observation: the text that the policy reads next; not read where the episode is done.
    reward: of this turn; the reward of an episode is the sum over its turns. info: numbers that are
    summed over the turns of an episode, for metrics `episode/NAME`.
    """

    observation: str = ""
    reward: float = 0.0
    is_done: bool = False
    info: Mapping[str, float] = field(default_factory=dict)


class Environment(Protocol):
    """One episode at a time; each sample has its own environment."""

    def reset(self, example: Example, seed: int) -> str:
        """Begin an episode. Returns what the policy reads after the prompt, '' for nothing."""
        ...

    def step(self, action: str, finished: bool) -> Turn:
        """The policy's next action. finished: whether it ends with the end token; one that does
        not was cut at a limit, and the episode ends with it."""
        ...


# The texts of tokens that stand behind each other, one each.
TokenTexts = Callable[[Sequence[int]], Sequence[str]]


def episode_metrics(samples: Sequence[Sample]) -> Metrics:
    """Means over episodes: turns, the environment's tokens, time and own numbers, and the shares
    that it ended, and that ended because it was late. An episode without one of these numbers
    counts as 0. Nothing without episodes."""
    episodes = [sample.episode for sample in samples if sample.episode]
    if not episodes:
        return {}
    count = len(episodes)
    names = sorted({name for episode in episodes for name in episode.info})
    return {
        "episode/turns": sum(len(episode.turns) for episode in episodes) / count,
        "episode/observed_tokens": sum(episode.observed_tokens for episode in episodes) / count,
        "episode/done": sum(episode.is_done for episode in episodes) / count,
        "episode/late": sum(episode.is_late for episode in episodes) / count,
        "episode/virtual_seconds_tools": sum(sum(episode.waits) for episode in episodes) / count,
        **{
            f"episode/{name}": sum(episode.info.get(name, 0.0) for episode in episodes) / count
            for name in names
        },
    }


def transcript(sample: Sample) -> str:
    """The text of a sample: of an episode a line for each action, with the reward of its turn, and
    each observation."""
    if not sample.episode:
        return sample.text
    return "\n".join(
        f"{turn['writer']}{reward_of(turn)}: {turn['text'].strip()}" for turn in turns_of(sample)
    )


def reward_of(turn: Mapping[str, Any]) -> str:
    return f" ({turn['reward']:.4g})" if "reward" in turn else ""


def turns_of(sample: Sample, token_texts: TokenTexts | None = None) -> list[dict[str, Any]]:
    """The texts of a sample as rows with their writers and, by `token_texts`, the texts of their
    tokens. Those of the policy have the log-probs of their tokens, the versions that wrote the
    first and the last, and that of each token where these differ; in an episode also the reward of
    their turn. A sample without an episode is one text of the policy."""
    versions = sample.versions or (sample.version,) * len(sample.tokens)
    episode = sample.episode or Episode(
        turns=((len(sample.tokens) - 1, 0.0),), transcript=((POLICY, sample.text),)
    )
    rows: list[dict[str, Any]] = []
    ends, observed, start = iter(episode.turns), iter(episode.observed), 0
    for writer, text in episode.transcript:
        rows.append({"writer": writer, "text": text})
        if writer != POLICY:
            _, tokens = next(observed, (0, ()))
            rows[-1] |= {"token_texts": list(token_texts(tokens))} if token_texts else {}
            continue
        last, reward = next(ends)
        own = slice(start, last + 1)
        rows[-1] |= {"reward": reward} if sample.episode else {}
        rows[-1] |= {"token_texts": list(token_texts(sample.tokens[own]))} if token_texts else {}
        rows[-1] |= written_by(sample.logps[own], versions[own])
        start = last + 1
    return rows


def written_by(logps: Sequence[float], versions: Sequence[int]) -> dict[str, Any]:
    """Log-probs and versions of the tokens of a text; None for a log-prob that is not known."""
    found: dict[str, Any] = {
        "logps": [logp if math.isfinite(logp) else None for logp in logps],
    }
    if versions:
        found |= {"version": versions[0], "newest_version": versions[-1]}
    return found | ({"versions": list(versions)} if len(set(versions)) > 1 else {})
