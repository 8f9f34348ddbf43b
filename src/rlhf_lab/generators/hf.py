"""Sampling with a transformers causal language model and its key-value cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rlhf_lab.batching import pad_left
from rlhf_lab.forward import load_weights, positions, torch_threads
from rlhf_lab.types import Chunk, Finish, Group, Sample, UserError, WeightFeed, Weights

Uniforms = Callable[[int, int, int], np.ndarray]


@dataclass(frozen=True)
class HFSampling:
    """Config group `generator`. The temperature divides the logits of all log-probs of the run.

    chunk_groups: prompts decoded together. It is part of the result: a matrix product may round
    differently in another batch. threads: torch threads per operation of a generator.
    max_new_tokens: 0 takes the task's own response length.
    """

    name: str = "hf"
    temperature: float = 0.7
    chunk_groups: int = 64
    max_new_tokens: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        if not 0.01 <= self.temperature <= 10:
            raise UserError(
                f"generator.temperature={self.temperature} is out of range: choose 0.01 to 10"
            )
        for key, least in (("chunk_groups", 1), ("max_new_tokens", 0), ("threads", 1)):
            if getattr(self, key) < least:
                raise UserError(f"generator.{key}={getattr(self, key)}: choose {least} or more")


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that sampling needs."""

    eos_token_id: int
    pad_token_id: int | None

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str: ...


class HFGenerator:
    """Draws by inverse CDF from counter-based uniforms, keyed by prompt, sample and position.

    uniforms(prompt id, sample number, count) gives `count` numbers in [0, 1). So a sample depends
    on the weights, its chunk and its key alone: not on the order of chunks, nor on other rows'
    lengths.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer,
        sampling: HFSampling,
        max_new_tokens: int,
        uniforms: Uniforms,
    ) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._max_new_tokens = max_new_tokens
        self._uniforms = uniforms
        self._loaded: Weights | None = None

    def generate(self, feed: WeightFeed, chunk: Chunk) -> tuple[Group, ...]:
        """Samples of every prompt of the chunk, K each, with their behaviour log-probs."""
        with torch_threads(self._sampling.threads), torch.inference_mode():
            tokens_BT, logp_BT, versions = self._decode(feed, chunk)
            if bool(logp_BT.isnan().any()):  # elsewhere NaN means that the writer is unknown
                raise FloatingPointError(
                    f"the policy's log-probs are NaN at version {versions[0]}: no sample was made"
                )
        return self._groups(versions, chunk, tokens_BT.tolist(), logp_BT.tolist())

    def _load(self, weights: Weights) -> int:
        if self._loaded is not weights:
            load_weights(self._model, weights)
            self._loaded = weights
        return weights.version

    def _decode(self, feed: WeightFeed, chunk: Chunk) -> tuple[Tensor, Tensor, list[int]]:
        """Tokens and log-probs BT, and the version that wrote each column.

        New weights in the middle go on from the cache that the old ones made (as in-flight updates
        do, arXiv:2509.19128); log-probs are those of the distribution that was sampled from.
        """
        versions = [self._load(feed.at(0))]
        prompts, group_size = chunk.prompts, chunk.group_size
        is_greedy_B = torch.arange(len(prompts) * group_size) % group_size == group_size - 1
        is_greedy_B &= chunk.greedy
        eos = self._tokenizer.eos_token_id
        uniform_BT = torch.from_numpy(
            np.stack(
                [
                    self._uniforms(prompt.id, number, self._max_new_tokens)
                    for prompt in prompts
                    for number in range(group_size)
                ]
            )
        )
        pad = eos if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id
        prompt_PS, mask_PS = pad_left([prompt.tokens for prompt in prompts], pad)
        output = self._model(
            input_ids=prompt_PS,
            attention_mask=mask_PS,
            position_ids=positions(mask_PS),
            use_cache=True,
            logits_to_keep=1,
        )
        # The prompt is read once for all of its samples.
        cache = output.past_key_values
        cache.batch_repeat_interleave(group_size)
        logits_BV = output.logits[:, -1].repeat_interleave(group_size, dim=0)
        mask_BS = mask_PS.repeat_interleave(group_size, dim=0)
        position_B1 = mask_BS.sum(dim=1, keepdim=True)
        tokens, logps = [], []
        done_B = torch.zeros(len(mask_BS), dtype=torch.bool)
        one_B1 = torch.ones_like(position_B1)
        for step in range(self._max_new_tokens):
            token_B, logp_B = draw(
                logits_BV, self._sampling.temperature, uniform_BT[:, step], is_greedy_B
            )
            tokens.append(token_B)
            logps.append(logp_B)
            done_B = done_B | (token_B == eos)
            if step + 1 == self._max_new_tokens or bool(done_B.all()):
                break
            mask_BS = torch.cat([mask_BS, one_B1], dim=1)
            versions.append(self._load(feed.at(step + 1)))
            logits_BV = self._model(
                input_ids=token_B.unsqueeze(1),
                attention_mask=mask_BS,
                position_ids=position_B1 + step,
                past_key_values=cache,
                use_cache=True,
            ).logits[:, -1]
        return torch.stack(tokens, dim=1), torch.stack(logps, dim=1), versions

    def _groups(
        self,
        versions: list[int],
        chunk: Chunk,
        tokens: list[list[int]],
        logps: list[list[float]],
    ) -> tuple[Group, ...]:
        samples = [
            self._sample(versions, row, logp) for row, logp in zip(tokens, logps, strict=True)
        ]
        size = chunk.group_size
        return tuple(
            Group(prompt, tuple(samples[number * size : (number + 1) * size]))
            for number, prompt in enumerate(chunk.prompts)
        )

    def _sample(self, versions: list[int], tokens: list[int], logps: list[float]) -> Sample:
        """Cut at the first end token, which belongs to the sample (N+ detail 23)."""
        eos = self._tokenizer.eos_token_id
        is_finished = eos in tokens
        length = tokens.index(eos) + 1 if is_finished else len(tokens)
        return Sample(
            tokens=tuple(tokens[:length]),
            logps=tuple(logps[:length]),
            version=versions[0],
            finish=Finish.eos if is_finished else Finish.length,
            text=self._tokenizer.decode(tokens[:length], skip_special_tokens=True),
            versions=() if versions[0] == versions[length - 1] else tuple(versions[:length]),
        )


def draw(
    logits_BV: Tensor, temperature: float, uniform_B: Tensor, is_greedy_B: Tensor
) -> tuple[Tensor, Tensor]:
    """One token a row by inverse CDF (the likeliest in greedy rows), and its log-prob at the
    temperature.

    The sum runs in float64, so that a vocabulary of 100k tokens keeps its last ones.
    """
    logp_BV = torch.log_softmax(logits_BV.float() / temperature, dim=-1)
    cumulative_BV = logp_BV.double().exp().cumsum(dim=-1)
    threshold_B1 = (uniform_B * cumulative_BV[:, -1]).unsqueeze(1)
    token_B1 = torch.searchsorted(cumulative_BV, threshold_B1, right=True)
    token_B1 = token_B1.clamp(max=logp_BV.shape[1] - 1)
    likeliest_B1 = logp_BV.argmax(dim=1, keepdim=True)
    token_B1 = torch.where(is_greedy_B.unsqueeze(1), likeliest_B1, token_B1)
    return token_B1.squeeze(1), logp_BV.gather(1, token_B1).squeeze(1)
