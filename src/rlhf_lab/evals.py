"""Evaluation of saved weights: gold win-rate, drift from SFT, length. Never in the timed region."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.batching import collate, micro_batches
from rlhf_lab.forward import load_weights, response_output, torch_threads
from rlhf_lab.off_policy import k3_terms
from rlhf_lab.types import (
    Batch,
    Chunk,
    Finish,
    Generator,
    Group,
    Metrics,
    Prompt,
    Reward,
    Split,
    UserError,
    Weights,
)


@dataclass(frozen=True)
class EvalOptions:
    """Config group `eval`.

    prompts: how many of the split. snapshots: saved versions of a run to evaluate, spread evenly,
    the last always among them (0: none). temperature: of the judged samples; 0 takes
    generator.temperature, so that one set of samples serves win-rate and KL (the paper judges at
    0.01). table_rows: sample texts kept.
    """

    name: str = "quick"
    split: Split = Split.validation
    prompts: int = 512
    snapshots: int = 5
    temperature: float = 0.0
    table_rows: int = 8
    threads: int = 2

    def __post_init__(self) -> None:
        for key, least in (("prompts", 1), ("snapshots", 0), ("table_rows", 0), ("threads", 1)):
            if getattr(self, key) < least:
                raise UserError(f"eval.{key}={getattr(self, key)}: choose {least} or more")
        if not (self.temperature == 0 or 0.01 <= self.temperature <= 10):
            raise UserError(
                f"eval.temperature={self.temperature} is out of range: choose 0.01 to 10, or 0 for "
                "generator.temperature"
            )

    def versions(self, num_rounds: int) -> tuple[int, ...]:
        """Which versions to keep: version 0 is SFT, version num_rounds the end."""
        if not self.snapshots:
            return ()
        steps = [num_rounds * step / self.snapshots for step in range(self.snapshots + 1)]
        return tuple(sorted({round(step) for step in steps}))


@dataclass(frozen=True)
class Evaluator:
    """Judges weights on fixed prompts with fixed randomness.

    judged: draws the samples that are judged; sampled: draws at the run's temperature, for KL (the
    same object if the temperatures are equal). reference: the SFT model. gold and proxy score.
    """

    judged: Generator
    sampled: Generator
    policy: Any
    reference: Any
    gold: Reward
    proxy: Reward
    prompts: Sequence[Prompt]
    references: Sequence[Group]
    pad_id: int
    temperature: float
    chunk_groups: int
    options: EvalOptions

    def evaluate(self, weights: Weights) -> tuple[Metrics, list[dict[str, Any]]]:
        """Metrics of a version, and a row per prompt of the table of texts."""
        groups = self._generate(self.judged, weights)
        gold = first(self.gold.score(groups))
        reference_gold = first(self.gold.score(self.references))
        wins = [mine > theirs for mine, theirs in zip(gold, reference_gold, strict=True)]
        low, high = wilson(sum(wins), len(wins))
        samples = [group.samples[0] for group in groups]
        metrics: Metrics = {
            "version": weights.version,
            "gold/win_rate": sum(wins) / len(wins),
            "gold/win_rate_low": low,
            "gold/win_rate_high": high,
            "gold/mean": mean(gold),
            "gold/reference_mean": mean(reference_gold),
            "proxy/mean": mean(first(self.proxy.score(groups))),
            "sample/length": mean([len(sample.tokens) for sample in samples]),
            "sample/eos_rate": mean([float(s.finish is Finish.eos) for s in samples]),
            "eval/prompts": len(groups),
        }
        drift, drawn = self._drift(weights, groups)
        written = groups if drawn is groups else [*groups, *drawn]
        tokens = sum(len(group.samples[0].tokens) for group in written)
        metrics |= drift | {"eval/generated_tokens": tokens}
        texts = zip(groups, self.references, gold, reference_gold, strict=True)
        return metrics, [
            {
                "uid": group.prompt.example.uid,
                "prompt": group.prompt.example.prompt,
                "reference": reference.samples[0].text,
                "sample": group.samples[0].text,
                "gold": mine,
                "reference_gold": theirs,
            }
            for group, reference, mine, theirs in texts
        ]

    def _generate(self, generator: Generator, weights: Weights) -> list[Group]:
        groups: list[Group] = []
        for start in range(0, len(self.prompts), self.chunk_groups):
            chosen = tuple(self.prompts[start : start + self.chunk_groups])
            groups.extend(generator.generate(weights, Chunk(0, start, chosen, group_size=1)))
        return groups

    def _drift(self, weights: Weights, groups: list[Group]) -> tuple[Metrics, list[Group]]:
        """KL per sequence on samples at the run's temperature; perplexity of the judged ones.

        Also returns the samples that the KL was measured on.
        """
        load_weights(self.policy, weights)
        is_same = self.sampled is self.judged
        drawn = groups if is_same else self._generate(self.sampled, weights)
        with torch_threads(self.options.threads), torch.inference_mode():
            away_B, ratio_B = self._log_ratios(collate(drawn, self.pad_id))
            nll_B, length_B, read_B = self._perplexity(collate(groups, self.pad_id))
        metrics = {
            "kl/sft_k1": float(away_B.mean()),
            "kl/sft_k3": float(ratio_B.mean()),
            "ppl/sft_response": float((nll_B.sum() / length_B.sum()).exp()),
            "ppl/sft_paper": float((nll_B / read_B).exp().mean()),
        }
        return metrics, drawn

    def _log_ratios(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Per sequence: sum of log ratios (k1), and sum of per-token k3 (never negative)."""
        k1, k3 = [], []
        for part in micro_batches(batch, 128):
            policy_BT = response_output(self.policy, part, self.temperature).logp_BT
            reference_BT = response_output(self.reference, part, self.temperature).logp_BT
            away_BT = policy_BT - reference_BT
            k1.append(away_BT.sum(dim=1))
            k3.append(k3_terms(-away_BT).sum(dim=1))
        return torch.cat(k1), torch.cat(k3)

    def _perplexity(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Per sequence, under SFT at temperature 1: negative log-likelihood, response tokens, all.

        The paper's published axis divides by prompt and response tokens; it is kept beside the
        true one for comparison.
        """
        nll = [
            -response_output(self.reference, part, 1.0).logp_BT.sum(dim=1)
            for part in micro_batches(batch, 128)
        ]
        length_B = batch.mask_BT.sum(dim=1)
        return torch.cat(nll), length_B, length_B + batch.prompt_mask_BS.sum(dim=1)


def first(scores: Sequence[tuple[float, ...]]) -> list[float]:
    """The only score of each group."""
    return [row[0] for row in scores]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson 95% interval of a share: prompts as trials, one training seed."""
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
