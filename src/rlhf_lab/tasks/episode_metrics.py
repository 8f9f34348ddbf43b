"""Metrics of episodes, and an episode as text and as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    return "\n".join(
        f"{turn['writer']}{reward_of(turn)}: {turn['text'].strip()}" for turn in turns_of(sample)
    )


def reward_of(turn: Mapping[str, Any]) -> str:
    return f" ({turn['reward']:.4g})" if "reward" in turn else ""


def turns_of(sample: Sample) -> list[dict[str, Any]]:
    """The texts of an episode as rows; none without one. Those of the policy have the reward of
    their turn, the log-probs of their tokens, and the versions that wrote the first and the
    last."""
    if not sample.episode:
        return []
    versions = sample.versions or (sample.version,) * len(sample.tokens)
    rows: list[dict[str, Any]] = []
    ends, start = iter(sample.episode.turns), 0
    for writer, text in sample.episode.transcript:
        rows.append({"writer": writer, "text": text})
        if writer == POLICY:
            last, reward = next(ends)
            rows[-1] |= {
                "reward": reward,
                "logps": list(sample.logps[start : last + 1]),
                "version": versions[start],
                "newest_version": versions[last],
            }
            start = last + 1
    return rows
