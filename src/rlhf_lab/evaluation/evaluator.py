"""Evaluation of saved weights: gold win-rate, KL to SFT, length. Never in the timed region."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlhf_lab.evaluation.measures import (
    Judged,
    Scored,
    by_comparison,
    by_itself,
    by_score,
    gap_metrics,
    margin_metrics,
    mean,
    solved_metrics,
    task_metrics,
    win_metrics,
)
from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.evaluation.sft_distance import distance_metrics
from rlhf_lab.models.batching import collate
from rlhf_lab.models.devices import torch_threads
from rlhf_lab.models.weights import load_weights
from rlhf_lab.tasks.environment import episode_metrics, transcript
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator
from rlhf_lab.types.reward import Reward
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


def drain_counts(noun: str, reward: Reward) -> Metrics:
    """The counts of a reward since the last call, such as requests to a judge."""
    return {f"{noun}/{name}": number for name, number in reward.drain().items()}


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


@dataclass(frozen=True)
class Evaluator:
    """Evaluates weights on fixed prompts with fixed randomness.

    judged: generates the samples that are judged; sampled: those at the run's temperature, for KL
    (the same object if the temperatures are equal). reference: the SFT model. gold: the judge,
    which scores or compares; None without a judge. references: empty for a task that has none.
    is_verified: gold is 1 for right and 0 for wrong. answering: finds the answers that maj@k votes
    on. has_policy_logps: the log-probs of `sampled` are the policy's up to rounding in float32, so
    that the policy need not read its samples again. why_no_win_rate: '' if there is one.
    """

    judged: Generator
    sampled: Generator
    policy: Any
    reference: Any
    gold: Reward | None
    proxy: Reward
    prompts: Sequence[Prompt]
    references: Sequence[Group]
    pad_id: int
    temperature: float
    is_verified: bool
    answering: Task | None
    options: EvalOptions
    has_policy_logps: bool = False
    why_no_win_rate: str = ""

    def evaluate(
        self, weights: Weights, num_prompts: int | None = None
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """Metrics of a version, and a row per prompt of the table of texts. num_prompts: so many
        of the first prompts answer, None for all; their samples are those that they have anyway.

        All but pass@k and maj@k is about the first sample of each prompt.
        """
        prompts = self.prompts[:num_prompts]
        groups = self._generate(self.judged, weights, prompts, self.options.samples)
        firsts = first_samples(groups)
        samples = [group.samples[0] for group in firsts]
        judged, solved = self._judge(groups, firsts)
        metrics: Metrics = {
            "version": weights.version,
            **self._gold(firsts, judged),
            **self._proxy(firsts, judged),
            **solved,
            **task_metrics(firsts, judged, self.is_verified),
            **sample_metrics(samples),
            "eval/prompts": len(groups),
            **({"eval/prompts_unjudged": judged.count(None)} if self.gold else {}),
            "eval/samples": self.options.samples,
            "eval/split": self.options.split.value,
            **({"eval/no_win_rate": self.why_no_win_rate} if self.why_no_win_rate else {}),
        }
        distance, drawn = self._distance(weights, prompts, firsts)
        generated = groups if drawn is firsts else [*groups, *drawn]
        tokens = sum(len(sample.tokens) for group in generated for sample in group.samples)
        metrics |= distance | {"eval/generated_tokens": tokens}
        return metrics, text_rows(firsts, self.references[: len(firsts)], judged)

    def _generate(
        self, generator: Generator, weights: Weights, prompts: Sequence[Prompt], num: int
    ) -> list[Group]:
        return generate_samples(generator, weights, prompts, num, self.options.chunk_groups)

    @functools.cached_property
    def _gold_of_references(self) -> list[tuple[float, ...]]:
        """Scored once for all versions: a judge may cost something."""
        assert self.gold is not None
        return self.gold.score(self.references)

    @functools.cached_property
    def _proxy_of_references(self) -> list[tuple[float, ...]]:
        return self.proxy.score(self.references)

    def _judge(
        self, groups: Sequence[Group], firsts: Sequence[Group]
    ) -> tuple[list[Judged | None], Metrics]:
        """The judge's verdict of the first samples, and pass@k and maj@k of all of them."""
        if self.gold is None:
            return [None] * len(firsts), {}
        if self.references and self.gold.compares:
            references = self.references[: len(firsts)]
            return [by_comparison(row) for row in self.gold.compare(firsts, references)], {}
        scores = self.gold.score(groups)
        judged = [by_itself(row) for row in scores]
        if self.references:
            pairs = zip(scores, self._gold_of_references[: len(scores)], strict=True)
            judged = [by_score(row, reference) for row, reference in pairs]
        scored = [(g, row) for g, row in zip(groups, scores, strict=True) if row]
        if not self.is_verified or not scored:
            return judged, {}
        solved, rows = [group for group, _ in scored], [row for _, row in scored]
        return judged, solved_metrics(solved, rows, self.options.sizes, self.answering)

    def _gold(self, firsts: Sequence[Group], judged: Sequence[Judged | None]) -> Metrics:
        """Win-rates over the prompts that could be judged; nothing without a judge."""
        if self.gold is None:
            return {}
        counts = drain_counts("judge", self.gold)
        known = [(row, index) for index, row in enumerate(judged) if row]
        if not known:
            text = "".join(f", {key} {number}" for key, number in counts.items())
            raise UserError(
                f"the judge could judge none of {len(firsts)} prompts{text}: see to it that it "
                "answers (judge=...), then run `rlhf-lab evaluate RUN`"
            )
        # Tokens by which samples are longer than their references.
        longer = [
            len(firsts[i].samples[0].tokens) - len(self.references[i].samples[0].tokens)
            for _, i in known
            if self.references
        ]
        return win_metrics([row for row, _ in known], longer) | counts

    def _proxy(self, firsts: Sequence[Group], judged: Sequence[Judged | None]) -> Metrics:
        """The proxy's scores; with references how often it prefers the sample, and the gap to gold
        over the prompts that both could judge."""
        scores = self.proxy.score(firsts)
        references = self._proxy_of_references[: len(firsts)] if self.references else []
        metrics = drain_counts("proxy", self.proxy) | proxy_metrics(scores)
        if not self.references:
            return metrics
        if self.gold is None:
            pairs = zip(scores, references, strict=True)
            return metrics | margin_metrics([Scored(s[0], r[0]) for s, r in pairs if s and r])
        both = [
            (row, Scored(score[0], reference[0]))
            for row, score, reference in zip(judged, scores, references, strict=True)
            if row and score and reference
        ]
        if both:
            proxy = [scored for _, scored in both]
            gold = [Scored(row.gold, row.reference_gold or 0.0) for row, _ in both]
            metrics["proxy/reference_mean"] = mean([scored.reference for scored in proxy])
            metrics |= gap_metrics(gold, proxy, [row.win or 0.0 for row, _ in both])
        return metrics

    def _distance(
        self, weights: Weights, prompts: Sequence[Prompt], firsts: list[Group]
    ) -> tuple[Metrics, list[Group]]:
        """KL and perplexity to SFT, and the samples that they were measured on."""
        is_same = self.sampled is self.judged
        policy = None if self.has_policy_logps else self.policy
        if policy is not None:
            load_weights(policy, weights)
        drawn = firsts if is_same else self._generate(self.sampled, weights, prompts, 1)
        with torch_threads(self.options.threads), torch.inference_mode():
            judged = collate(firsts, self.pad_id)
            batch = judged if is_same else collate(drawn, self.pad_id)
            metrics = distance_metrics(policy, self.reference, batch, judged, self.temperature)
        return metrics, drawn


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
