"""Metrics of episodes, and an episode as text."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.types.data import Metrics
from rlhf_lab.types.samples import POLICY, Sample


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
    rewards = iter(sample.episode.turns)
    return "\n".join(
        f"policy ({next(rewards)[1]:.4g}): {text.strip()}"
        if writer == POLICY
        else f"{writer}: {text.strip()}"
        for writer, text in sample.episode.transcript
    )
