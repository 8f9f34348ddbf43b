"""Samples of evaluation prompts, and the metrics that the samples and their scores alone give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhf_lab.evaluation.measures.intervals import mean
from rlhf_lab.evaluation.measures.verdicts import Judged
from rlhf_lab.tasks.episode_metrics import episode_metrics, transcript
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.protocols import Generator
from rlhf_lab.types.reward_protocols import Comparing, Metered, Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Prompt, Sample


def generate_samples(
    generator: Generator, weights: Weights, prompts: Sequence[Prompt], num: int, chunk_groups: int
) -> list[Group]:
    """So many samples of each prompt, in chunks that depend on nothing else."""
    size = max(1, chunk_groups // num)
    chunks = [
        Chunk(0, start, tuple(prompts[start : start + size]), group_size=num)
        for start in range(0, len(prompts), size)
    ]
    return generator.generate_all(weights, chunks)


def first_samples(groups: Sequence[Group]) -> list[Group]:
    """The groups with the first sample of each prompt alone."""
    return [Group(group.prompt, group.samples[:1]) for group in groups]


def proxy_metrics(scores: Sequence[tuple[float, ...]]) -> Metrics:
    """The proxy's mean over the prompts that it could score, by their first sample's score."""
    firsts = [row[0] for row in scores if row]
    metrics: Metrics = {"proxy/prompts_unscored": len(scores) - len(firsts)}
    return metrics | {"proxy/mean": mean(firsts)} if firsts else metrics


def sample_metrics(samples: Sequence[Sample]) -> Metrics:
    """How long the samples are, and the share that ended with the end token."""
    return {
        "sample/length": mean([len(sample.tokens) for sample in samples]),
        "sample/eos_rate": mean([float(s.finish is Finish.eos) for s in samples]),
        **episode_metrics(samples),
    }


def drain_counts(noun: str, reward: Reward | Comparing) -> Metrics:
    """The counts of a reward since the last call, such as requests to a judge."""
    counts = reward.drain() if isinstance(reward, Metered) else {}
    return {f"{noun}/{name}": number for name, number in counts.items()}


def text_rows(
    firsts: Sequence[Group], references: Sequence[Group], judged: Sequence[Judged | None]
) -> list[dict[str, Any]]:
    """A row per prompt; gold is None where it could not be judged, and a reference where there
    is none."""
    texts: list[str | None] = [group.samples[0].text for group in references]
    return [
        {
            "uid": group.prompt.example.uid,
            "prompt": group.prompt.example.prompt,
            "reference": reference,
            "sample": transcript(group.samples[0]),
            "gold": row.gold if row else None,
            "reference_gold": row.reference_gold if row else None,
        }
        for group, reference, row in zip(firsts, texts or [None] * len(firsts), judged, strict=True)
    ]
