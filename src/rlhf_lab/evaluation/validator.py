"""Validation: the proxy's scores of a version, without the cost of a judge."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.evaluation.samples import (
    drain_counts,
    first_samples,
    generate_samples,
    proxy_metrics,
    sample_metrics,
)
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.protocols import Generator
from rlhf_lab.types.reward_protocols import Reward
from rlhf_lab.types.samples import Prompt


@dataclass(frozen=True)
class Validator:
    """Scores the samples of a version by the proxy: the samples and the mean of an evaluation,
    without the judge."""

    generator: Generator
    proxy: Reward
    prompts: list[Prompt]
    options: EvalOptions

    def validate(self, weights: Weights) -> Metrics:
        """The proxy's mean, and length and ends of the samples."""
        options = self.options
        groups = generate_samples(
            self.generator, weights, self.prompts, options.samples, options.chunk_groups
        )
        firsts = first_samples(groups)
        return {
            "version": weights.version,
            **proxy_metrics(self.proxy.score(firsts)),
            **drain_counts("proxy", self.proxy),
            **sample_metrics([group.samples[0] for group in firsts]),
            "eval/prompts": len(groups),
            "eval/split": options.split.value,
        }
