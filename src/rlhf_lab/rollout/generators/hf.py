"""Sampling with a transformers causal language model, by its own forward or by a lean loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rlhf_lab.models.devices import chosen, torch_threads
from rlhf_lab.models.weights import load_weights, with_parameters_in
from rlhf_lab.rollout.generators.decoders import decoder_of
from rlhf_lab.rollout.generators.draw import draw
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.runs.memory import memory_for
from rlhf_lab.types.data import Weights
from rlhf_lab.types.protocols import WeightFeed
from rlhf_lab.types.rollouts import Chunk, GeneratorReport
from rlhf_lab.types.samples import Finish, Group, Sample

Uniforms = Callable[[int, int, int], np.ndarray]
# Finished rows leave the batch when no more than this share of its rows still writes: to copy the
# others costs about as much as a few tokens.
STILL_WRITING = 0.75


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that sampling needs."""

    eos_token_id: int

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str: ...


@dataclass(frozen=True)
class Rows:
    """The rows to write: `texts` (token ids), each read once for `repeats` consecutive rows.

    number_B: index of each row among the chunk's samples. start: tokens that every row has already.
    uniform_BT: one random number for each new token, of which there are T at most.
    """

    texts: Sequence[Sequence[int]]
    repeats: int
    number_B: Tensor
    start: int
    uniform_BT: Tensor
    is_greedy_B: Tensor


@dataclass(frozen=True)
class WrittenTokens:
    """New tokens and their log-probs, BT (what follows an end token is ignored), and the version
    that wrote each column."""

    token_BT: Tensor
    logp_BT: Tensor
    versions: list[int]


class HFGenerator:
    """Draws by inverse CDF from counter-based uniforms, keyed by prompt, sample and position.

    uniforms(prompt id, sample number, count) gives `count` numbers in [0, 1). So a sample depends
    on the weights, its chunk and its key alone, not on the order of chunks.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        sampling: HFSampling,
        max_new_tokens: int,
        uniforms: Uniforms,
    ) -> None:
        self._device = chosen(sampling.device, "generator.device")
        own = sampling.dtype_on(self._device.type, str(model.dtype).removeprefix("torch."))
        self._model = with_parameters_in(model.eval().to(self._device), getattr(torch, own))
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._max_new_tokens = max_new_tokens
        self._uniforms = uniforms
        self._loaded: Weights | None = None
        with torch_threads(sampling.threads):
            self._decoder, self._note = decoder_of(self._model, sampling.decode)

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Samples of every prompt of the chunk, K each, with their behaviour log-probs."""
        with (
            torch_threads(self._sampling.threads),
            torch.inference_mode(),
            memory_for("generation", f"generator.chunk_groups={self._sampling.chunk_groups}"),
        ):
            rows = self._rows(chunk)
            written = self._write(feed, rows)
            if bool(written.logp_BT.isnan().any()):  # elsewhere NaN: the writer is unknown
                raise FloatingPointError(
                    f"the policy's log-probs are NaN at version {written.versions[0]}: no sample "
                    "was made"
                )
        return self._groups(chunk, rows, written)

    def report(self) -> GeneratorReport:
        """Once: why transformers decodes although the lean loop was allowed to."""
        notes, self._note = (self._note,) if self._note else (), ""
        return GeneratorReport({}, notes)

    def _rows(self, chunk: Chunk) -> Rows:
        """The chunk's rows; of a continued chunk, the unfinished ones."""
        size, begun = chunk.group_size, chunk.begun
        numbers = [n for n, s in enumerate(chunk.samples) if s.finish is Finish.unfinished]
        start = len(chunk.samples[numbers[0]].tokens)
        stop = chunk.stop(self._max_new_tokens)
        texts = [prompt.tokens for prompt in chunk.prompts]
        if begun:
            texts = [texts[n // size] + begun[n].tokens for n in numbers]
        drawn = [self._uniforms(chunk.prompts[n // size].id, n % size, stop) for n in numbers]
        number_B = torch.tensor(numbers)
        return Rows(
            texts=texts,
            repeats=1 if begun else size,
            number_B=number_B,
            start=start,
            uniform_BT=torch.from_numpy(np.stack(drawn)[:, start:]).to(self._device),
            is_greedy_B=((number_B % size == size - 1) & chunk.greedy).to(self._device),
        )

    def _load(self, weights: Weights) -> int:
        if self._loaded is not weights:
            load_weights(self._model, weights)
            self._loaded = weights
        return weights.version

    def _write(self, feed: WeightFeed, rows: Rows) -> WrittenTokens:
        """Write all rows until they end or the random numbers do.

        New weights continue with the cache that old ones computed (in-flight updates,
        arXiv:2509.19128); log-probs are of the distribution that was sampled from.
        """
        versions = [self._load(feed.at(rows.start))]
        room = rows.uniform_BT.shape[1]
        eos = self._tokenizer.eos_token_id
        logits_BV = self._decoder.begin(rows.texts, rows.repeats, room)
        uniform_TB = rows.uniform_BT.T.contiguous()
        tokens = torch.full(uniform_TB.shape, eos, device=self._device)
        logps = torch.zeros(uniform_TB.shape, device=self._device)
        row_B = torch.arange(uniform_TB.shape[1], device=self._device)
        done_B = torch.zeros_like(row_B, dtype=torch.bool)
        is_greedy_B = rows.is_greedy_B
        for column in range(room):
            token_B, logp_B = draw(
                logits_BV, self._sampling.temperature, uniform_TB[column, row_B], is_greedy_B
            )
            tokens[column, row_B], logps[column, row_B] = token_B, logp_B
            done_B = done_B | (token_B == eos)
            writing = len(done_B) - int(done_B.sum())
            if column + 1 == room or not writing:
                break
            if writing <= STILL_WRITING * len(done_B):
                kept = torch.where(~done_B)[0]
                self._decoder.keep(kept)
                row_B, done_B, token_B = row_B[kept], done_B[kept], token_B[kept]
                is_greedy_B = is_greedy_B[kept]
            versions.append(self._load(feed.at(rows.start + column + 1)))
            logits_BV = self._decoder.step(token_B)
        end = len(versions)
        return WrittenTokens(tokens[:end].T.cpu(), logps[:end].T.cpu(), versions)

    def _groups(self, chunk: Chunk, rows: Rows, written: WrittenTokens) -> tuple[Group, ...]:
        """The chunk's groups with the new tokens; samples that had ended before do not change."""
        samples = list(chunk.samples)
        cells = zip(
            rows.number_B.tolist(), written.token_BT.tolist(), written.logp_BT.tolist(), strict=True
        )
        for number, tokens, logps in cells:
            samples[number] = self._longer(samples[number], tokens, logps, written.versions)
        return chunk.grouped(samples)

    def _longer(
        self, begun: Sample, tokens: list[int], logps: list[float], versions: list[int]
    ) -> Sample:
        """Cut at the first end token, which belongs to the sample (N+ detail 23)."""
        eos = self._tokenizer.eos_token_id
        length = tokens.index(eos) + 1 if eos in tokens else len(tokens)
        whole = begun.tokens + tuple(tokens[:length])
        finish = Finish.unfinished
        if eos in tokens:
            finish = Finish.eos
        elif len(whole) == self._max_new_tokens:
            finish = Finish.length
        text = self._tokenizer.decode(whole, skip_special_tokens=True)
        return begun.continued(tokens[:length], logps[:length], versions[:length], finish, text)
