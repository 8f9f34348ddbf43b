"""How far the batch in which vLLM draws a sample changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab.rollout.generators.vllm.requests import Answer


@dataclass(frozen=True)
class BatchEffect:
    """The same requests drawn in a batch and alone: the share of samples with other tokens, and the
    largest log-prob difference up to the first other token."""

    count: int
    changed: float
    logp_max: float

    def __str__(self) -> str:
        return (
            "vLLM draws each sample from its own seed, but may round by batch: of "
            f"{self.count} samples drawn again alone, {self.changed:.0%} had other tokens; their "
            f"log-probs differed by {self.logp_max:.1e} at most"
        )


def batch_effect(together: Sequence[Answer], alone: Sequence[Answer]) -> BatchEffect:
    """The difference between two lists of answers to the same requests."""
    changed, largest = 0, 0.0
    for one, other in zip(together, alone, strict=True):
        changed += one.tokens != other.tokens
        for index, (token, other_token) in enumerate(zip(one.tokens, other.tokens, strict=False)):
            if token != other_token:
                break
            largest = max(largest, abs(one.logps[index] - other.logps[index]))
    return BatchEffect(len(together), changed / len(together), largest)
