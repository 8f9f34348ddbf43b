"""Evaluation of saved weights: gold win-rate, drift from SFT, length. Never in the timed region."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch

from rlhf_lab.evaluation.measures.intervals import mean
from rlhf_lab.evaluation.measures.pass_at_k import solved_metrics
from rlhf_lab.evaluation.measures.score_gap import Scored, gap_metrics
from rlhf_lab.evaluation.measures.sft_distance import distance_metrics
from rlhf_lab.evaluation.measures.verdicts import Judged, by_comparison, by_score, win_metrics
from rlhf_lab.models.batching import collate
from rlhf_lab.models.devices import torch_threads
from rlhf_lab.models.weights import load_weights
from rlhf_lab.tasks.protocols import Answering
from rlhf_lab.types import limits
from rlhf_lab.types.data import Metrics, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Comparing, Generator, Metered, Reward
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Prompt, Sample, Split


class Validate(StrEnum):
    """Whose word is written down about the version at which a run pauses or ends."""

    none = "none"
    proxy = "proxy"
    judge = "judge"


LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)?")


@dataclass(frozen=True)
class EvalOptions(limits.Limited, key="eval"):
    """Which saved versions are judged, on which prompts, and how."""

    name: str = limits.name("quick")
    split: Split = limits.option(Split.validation, about="Split whose prompts are answered.")
    prompts: int = limits.count(512, about="Prompts of the split that are answered.")
    snapshots: int = limits.count(
        5,
        least=0,
        most=10**6,
        about=(
            "Saved versions of a run that are evaluated, evenly spread with the last always among "
            "them; 0 is none."
        ),
    )
    temperature: float = limits.number(
        0.0,
        least=0.01,
        most=10,
        also={0: "for generator.temperature"},
        about=(
            "Sampling temperature of judged responses; 0 takes generator.temperature, so that the "
            "same samples give win-rate and KL."
        ),
        source="the paper judges at 0.01",
    )
    samples: int = limits.count(1, most=10**5, about="Responses per prompt, for pass@k and maj@k.")
    ks: list[int] = limits.collection(
        list, about="The k of pass@k and maj@k; empty takes 1 and samples.", least=1, most=10**5
    )
    chunk_groups: int = limits.rows(256, about="Prompts decoded together, divided by samples.")
    label: str = limits.option(
        "",
        about=(
            "Writes evals-LABEL.jsonl beside evals.jsonl, for a second evaluation of a run; empty "
            "writes evals.jsonl."
        ),
    )
    table_rows: int = limits.count(
        8, least=0, most=10**6, about="Prompts whose responses are kept as texts and shown."
    )
    threads: int = limits.threads(2, about="CPU threads of each operation of evaluation.")
    validate: Validate = limits.option(
        Validate.none,
        about=(
            "Who scores the version at which a run pauses or ends, for validation.jsonl: nobody, "
            "the proxy (what searches select by), or the judge too."
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for k in self.ks:
            if k > self.samples:
                raise UserError(
                    f"eval.ks={self.ks} with eval.samples={self.samples}: choose numbers from 1 to "
                    f"eval.samples, or pass eval.samples={max(self.ks)}"
                )
        if not LABEL.fullmatch(self.label):
            raise UserError(
                f"eval.label={self.label!r} is part of a file's name: choose letters, digits, "
                "'.', '_' and '-', the first a letter or digit"
            )

    def versions(self, num_rounds: int) -> tuple[int, ...]:
        """Which versions to keep: version 0 is SFT, version num_rounds the end."""
        if not self.snapshots:
            return ()
        steps = [num_rounds * step / self.snapshots for step in range(self.snapshots + 1)]
        return tuple(sorted({round(step) for step in steps}))

    @property
    def sizes(self) -> list[int]:
        """The k of pass@k and maj@k."""
        return sorted(set(self.ks or (1, self.samples)))


@dataclass(frozen=True)
class Evaluator:
    """Judges weights on fixed prompts with fixed randomness.

    judged: draws the samples that are judged; sampled: draws at the run's temperature, for KL (the
    same object if the temperatures are equal). reference: the SFT model. gold scores or compares,
    proxy scores. is_verified: gold says right or wrong. answering: finds answers to vote on.
    """

    judged: Generator
    sampled: Generator
    policy: Any
    reference: Any
    gold: Reward | Comparing
    proxy: Reward
    prompts: Sequence[Prompt]
    references: Sequence[Group]
    pad_id: int
    temperature: float
    is_verified: bool
    answering: Answering | None
    options: EvalOptions

    def evaluate(self, weights: Weights) -> tuple[Metrics, list[dict[str, Any]]]:
        """Metrics of a version, and a row per prompt of the table of texts.

        All but pass@k and maj@k is about the first sample of each prompt.
        """
        groups = self._generate(self.judged, weights, self.options.samples)
        firsts = [replace(group, samples=group.samples[:1]) for group in groups]
        samples = [group.samples[0] for group in firsts]
        judged, of_verified = self._judge(groups, firsts)
        metrics: Metrics = {
            "version": weights.version,
            **self._gold(firsts, judged),
            **self._proxy(firsts, judged),
            **of_verified,
            **sample_metrics(samples),
            "eval/prompts": len(groups),
            "eval/prompts_unjudged": judged.count(None),
            "eval/samples": self.options.samples,
            "eval/split": self.options.split.value,
        }
        distance, drawn = self._distance(weights, firsts)
        written = groups if drawn is firsts else [*groups, *drawn]
        tokens = sum(len(sample.tokens) for group in written for sample in group.samples)
        metrics |= distance | {"eval/generated_tokens": tokens}
        return metrics, self._texts(firsts, judged)

    def _generate(self, generator: Generator, weights: Weights, num: int) -> list[Group]:
        return answered(generator, weights, self.prompts, num, self.options.chunk_groups)

    @functools.cached_property
    def _gold_of_references(self) -> list[tuple[float, ...]]:
        """Asked once for all versions: a judge may cost something."""
        if isinstance(self.gold, Comparing):
            return []
        return self.gold.score(self.references)

    @functools.cached_property
    def _proxy_of_references(self) -> list[tuple[float, ...]]:
        return self.proxy.score(self.references)

    def _judge(
        self, groups: Sequence[Group], firsts: Sequence[Group]
    ) -> tuple[list[Judged | None], Metrics]:
        """The judge's word on the first samples, and what a verifier says of all of them."""
        if isinstance(self.gold, Comparing):
            return [by_comparison(row) for row in self.gold.compare(firsts, self.references)], {}
        scores = self.gold.score(groups)
        pairs = zip(scores, self._gold_of_references, strict=True)
        judged = [by_score(row, reference) for row, reference in pairs]
        scored = [(g, row) for g, row in zip(groups, scores, strict=True) if row]
        if not self.is_verified or not scored:
            return judged, {}
        found = [group for group, _ in scored], [row for _, row in scored]
        return judged, solved_metrics(*found, self.options.sizes, self.answering)

    def _gold(self, firsts: Sequence[Group], judged: Sequence[Judged | None]) -> Metrics:
        """Win-rates over the prompts that could be judged."""
        counts = drained("judge", self.gold)
        known = [(row, place) for place, row in enumerate(judged) if row]
        if not known:
            told = "".join(f", {key} {number}" for key, number in counts.items())
            raise UserError(
                f"the judge could judge none of {len(firsts)} prompts{told}: see to it that it "
                "answers (judge=...), then run `rlhf-lab evaluate RUN`"
            )
        longer = [self._difference(firsts, place) for _, place in known]
        return win_metrics([row for row, _ in known], longer) | counts

    def _proxy(self, firsts: Sequence[Group], judged: Sequence[Judged | None]) -> Metrics:
        """The proxy's scores, and the gap to gold over the prompts that both could judge."""
        mine, theirs = self.proxy.score(firsts), self._proxy_of_references
        metrics = drained("proxy", self.proxy) | proxy_metrics(mine)
        both = [
            (row, Scored(score[0], reference[0]))
            for row, score, reference in zip(judged, mine, theirs, strict=True)
            if row and score and reference
        ]
        if both:
            proxy = [scored for _, scored in both]
            gold = [Scored(row.gold, row.reference_gold) for row, _ in both]
            metrics["proxy/reference_mean"] = mean([scored.reference for scored in proxy])
            metrics |= gap_metrics(gold, proxy, [row.win for row, _ in both])
        return metrics

    def _difference(self, firsts: Sequence[Group], place: int) -> int:
        """Tokens by which a prompt's sample is longer than its reference."""
        mine, theirs = firsts[place].samples[0], self.references[place].samples[0]
        return len(mine.tokens) - len(theirs.tokens)

    def _texts(
        self, firsts: Sequence[Group], judged: Sequence[Judged | None]
    ) -> list[dict[str, Any]]:
        """A row per prompt; gold is None where it could not be judged."""
        return [
            {
                "uid": group.prompt.example.uid,
                "prompt": group.prompt.example.prompt,
                "reference": reference.samples[0].text,
                "sample": group.samples[0].text,
                "gold": row.gold if row else None,
                "reference_gold": row.reference_gold if row else None,
            }
            for group, reference, row in zip(firsts, self.references, judged, strict=True)
        ]

    def _distance(self, weights: Weights, firsts: list[Group]) -> tuple[Metrics, list[Group]]:
        """How far the version is from SFT, and the samples that the KL was measured on."""
        load_weights(self.policy, weights)
        is_same = self.sampled is self.judged
        drawn = firsts if is_same else self._generate(self.sampled, weights, 1)
        with torch_threads(self.options.threads), torch.inference_mode():
            metrics = distance_metrics(
                self.policy,
                self.reference,
                collate(drawn, self.pad_id),
                collate(firsts, self.pad_id),
                self.temperature,
            )
        return metrics, drawn


def answered(
    generator: Generator, weights: Weights, prompts: Sequence[Prompt], num: int, chunk_groups: int
) -> list[Group]:
    """So many samples of each prompt, in chunks that depend on nothing else."""
    groups: list[Group] = []
    size = max(1, chunk_groups // num)
    for start in range(0, len(prompts), size):
        chosen = tuple(prompts[start : start + size])
        groups.extend(generator.generate(weights, Chunk(0, start, chosen, group_size=num)))
    return groups


def proxy_metrics(rows: Sequence[tuple[float, ...]]) -> Metrics:
    """The proxy's mean over the prompts that it could score, with their first sample's score."""
    scores = [row[0] for row in rows if row]
    metrics: Metrics = {"proxy/prompts_unscored": len(rows) - len(scores)}
    return metrics | {"proxy/mean": mean(scores)} if scores else metrics


def sample_metrics(samples: Sequence[Sample]) -> Metrics:
    """How long the samples are, and how many ended by themselves."""
    return {
        "sample/length": mean([len(sample.tokens) for sample in samples]),
        "sample/eos_rate": mean([float(s.finish is Finish.eos) for s in samples]),
    }


def drained(noun: str, scorer: Reward | Comparing) -> Metrics:
    """What a scorer counted since it was last asked."""
    counts = scorer.drain() if isinstance(scorer, Metered) else {}
    return {f"{noun}/{name}": number for name, number in counts.items()}
