"""The vLLM generator: loads weights, proves that vLLM has them, draws samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from rlhf_lab.rollout.generators.hf import Tokenizer
from rlhf_lab.rollout.generators.vllm.options import Prove
from rlhf_lab.rollout.generators.vllm.proof import Proof, perturbed
from rlhf_lab.rollout.generators.vllm.requests import (
    Answer,
    Backend,
    Drawing,
    EngineFailure,
    Request,
    drawing_of,
    requests_of,
)
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Finish, Group, Sample

CANARY = "proof"
PROOF_ROWS = 8
PROOF_TOKENS = 16
ALONE = 4


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


class VLLMGenerator:
    """A sample depends on the weights, its prompt, its seed, and, by rounding, on its batch.

    The backend has one version at a time: a chunk is finished before the next version is loaded.
    The first load is preceded by one of perturbed weights, and both are proved.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        drawing: Drawing,
        seed: int,
        proof: Proof,
        prove: Prove,
    ) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._drawing = drawing
        self._seed = seed
        self._proof = proof
        self._prove = prove
        self._loaded: Weights | None = None
        self._has_measured = False
        self._report = GeneratorReport()

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Samples of every prompt of the chunk, K each, with their behaviour log-probs."""
        weights = feed.at(0)
        if self._loaded is not weights:
            self._load(weights, chunk)
        requests = requests_of(chunk, self._seed)
        drawing = drawing_of(chunk, self._drawing)
        answers = self._draw(requests, drawing, str(weights.version))
        if not self._has_measured:
            self._measure(requests, drawing, answers, str(weights.version))
        drawn = iter(answers)
        samples = [
            self._continued(sample, weights.version, next(drawn))
            if sample.finish is Finish.unfinished
            else sample
            for sample in chunk.samples
        ]
        return chunk.grouped(samples)

    def report(self) -> GeneratorReport:
        """What was measured since the last call."""
        report, self._report = self._report, GeneratorReport()
        return report

    def close(self) -> None:
        self._backend.close()

    def _load(self, weights: Weights, chunk: Chunk) -> None:
        is_first = self._loaded is None
        self._loaded = None  # a failed load leaves no version behind
        if is_first:
            canary = perturbed(weights)
            self._transfer(canary, CANARY)
            self._require(canary, CANARY, chunk)
            del canary
        start = perf_counter()
        self._transfer(weights, str(weights.version))
        self._note(**{"timing/generator_sync_seconds": perf_counter() - start})
        if is_first or self._prove is Prove.every:
            self._require(weights, str(weights.version), chunk)
        self._loaded = weights

    def _transfer(self, weights: Weights, name: str) -> None:
        self._backend.load(weights, name)

    def _require(self, weights: Weights, name: str, chunk: Chunk) -> None:
        """Prove that vLLM has this version, by short samples, one of them greedy."""
        drawing = replace(
            self._drawing, max_new_tokens=min(PROOF_TOKENS, self._drawing.max_new_tokens)
        )
        requests = [
            Request(
                tokens=chunk.prompts[row % len(chunk.prompts)].tokens,
                seed=stable_hash("proof", row) % 2**63,
                place=row,
                is_greedy=row == 0,
            )
            for row in range(max(PROOF_ROWS, 2 * self._backend.num_engines))
        ]
        answers = self._draw(requests, drawing, name)
        gap = self._proof.require(weights, name, requests, answers)
        self._note(**{"generator/proof_gap_mean": gap.mean, "generator/proof_gap_max": gap.largest})

    def _draw(self, requests: Sequence[Request], drawing: Drawing, name: str) -> list[Answer]:
        answers = self._backend.draw(requests, drawing)
        for answer in answers:
            if set(answer.versions) != {name}:
                raise EngineFailure(
                    f"a sample was written by version {' and '.join(answer.versions)} of the "
                    f"weights, not by {name}: does another program load weights into this vLLM?"
                )
            if any(map(math.isnan, answer.logps)):  # elsewhere NaN marks offline samples
                raise FloatingPointError(
                    f"the policy's log-probs are NaN at version {name}: no sample was made"
                )
        return answers

    def _measure(
        self, requests: Sequence[Request], drawing: Drawing, answers: Sequence[Answer], name: str
    ) -> None:
        """Draw a few of a batch's samples again, each alone, and measure the difference."""
        step = max(1, len(requests) // ALONE)
        chosen = range(0, len(requests), step)[:ALONE]
        alone = [self._draw([requests[index]], drawing, name)[0] for index in chosen]
        effect = batch_effect([answers[index] for index in chosen], alone)
        self._has_measured = True
        self._note(
            str(effect),
            **{
                "generator/batch_changed": effect.changed,
                "generator/batch_logp_max": effect.logp_max,
            },
        )

    def _note(self, *notes: str, **measures: float) -> None:
        report = self._report
        self._report = GeneratorReport({**report.measures, **measures}, (*report.notes, *notes))

    def _continued(self, begun: Sample, version: int, answer: Answer) -> Sample:
        whole = begun.tokens + answer.tokens
        finish = Finish.unfinished
        if answer.is_finished:
            finish = Finish.eos
        elif len(whole) == self._drawing.max_new_tokens:
            finish = Finish.length
        versions = [version] * len(answer.tokens)
        text = self._tokenizer.decode(whole, skip_special_tokens=True)
        return begun.continued(answer.tokens, answer.logps, versions, finish, text)


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
