"""The proof that vLLM has the right weights: its log-probs against those of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from rlhf_lab.models.devices import release_unused, torch_threads
from rlhf_lab.models.weights import require_names
from rlhf_lab.rollout.generators.vllm.requests import Answer, EngineFailure, Request
from rlhf_lab.types.data import Weights
from rlhf_lab.types.heartbeat import beat
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Prompt

PROOF_ROWS = 8
NOISE = 0.1
FLOOR = 0.02
# Normal numbers cost more than all else here, so a tensor has this many of its own, over and over.
# A loss shows by the size of the noise alone, unless all rows of a matrix had the same: logits
# would move together. No width divides a prime, so rows begin elsewhere in the numbers.
PERIOD = 65521


@dataclass(frozen=True)
class Gap:
    """Absolute differences of log-probs over all tokens that were looked at."""

    mean: float
    largest: float


class Proof:
    """Compares answers with a forward pass of the same weights in transformers.

    model: the policy, whose weights are not read and may be on `meta`. tolerance: of the mean.
    device: of the passes; the tensors of a version are read there, copied only from elsewhere.
    """

    def __init__(
        self,
        model: Any,
        temperature: float,
        tolerance: float,
        threads: int,
        device: torch.device,
    ) -> None:
        self._model = model
        self._temperature = temperature
        self._tolerance = tolerance
        self._threads = threads
        self._device = device

    def require(
        self, weights: Weights, name: str, requests: Sequence[Request], answers: Sequence[Answer]
    ) -> Gap:
        """The gap of these answers. Raises EngineFailure where it is too large to be rounding."""
        gap = self._gap(weights, requests, answers)
        # Of the device that the trainer uses too: a whole copy of the policy.
        release_unused()
        # Written so that NaN is refused too.
        if not gap.mean <= self._tolerance:
            raise EngineFailure(
                f"vLLM does not have the weights that it was sent (version {name}): log-probs "
                f"differ from transformers' by {gap.mean:.3g} in the mean and {gap.largest:.3g} at "
                f"most (generator.prove_tolerance allows a mean of {self._tolerance:g}); no sample "
                "was used. A lower precision (generator.dtype) needs a higher tolerance; anything "
                "else is a fault in vLLM's loading of this model: use generator=hf"
            )
        return gap

    def _gap(self, weights: Weights, requests: Sequence[Request], answers: Sequence[Answer]) -> Gap:
        require_names(self._model, weights)
        tensors = {**dict(self._model.named_buffers()), **weights.state}
        state = {name: tensor.detach().to(self._device) for name, tensor in tensors.items()}
        with torch_threads(self._threads), torch.inference_mode():
            differences = [
                self._difference(state, request, answer)
                for request, answer in zip(requests, answers, strict=True)
            ]
        difference_N = torch.cat(differences)
        return Gap(float(difference_N.mean()), float(difference_N.max()))

    def _difference(self, state: dict[str, Tensor], request: Request, answer: Answer) -> Tensor:
        """|log-prob differences| of one answer's tokens, T. state: parameters and buffers."""
        beat()
        row_1S = torch.tensor([[*request.tokens, *answer.tokens]], device=self._device)
        token_T = row_1S[0, len(request.tokens) :]
        read = {"input_ids": row_1S, "use_cache": False}
        logits_1SV = functional_call(self._model, state, kwargs=read).logits
        logits_TV = logits_1SV[0, len(request.tokens) - 1 : -1]
        logp_TV = torch.log_softmax(logits_TV.float() / self._temperature, dim=-1)
        logp_T = logp_TV.gather(1, token_T.unsqueeze(1)).squeeze(1).cpu()
        return (logp_T - torch.tensor(answer.logps)).abs()


def perturbed(weights: Weights) -> Weights:
    """Every tensor a tenth away from where it was, so that one which does not arrive shows.

    An engine that has read the same checkpoint by itself would pass a proof of it untouched.
    """
    state = {}
    for name, tensor in weights.state.items():
        beat()
        rng = torch.Generator().manual_seed(stable_hash("proof", name) % 2**63)
        noise = torch.randn(min(tensor.numel(), PERIOD), generator=rng)
        norm = float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float32))
        size = max(NOISE * norm / tensor.numel() ** 0.5, FLOOR)
        state[name] = plus_repeated(tensor.detach(), (size * noise).to(tensor.device, tensor.dtype))
    return Weights(weights.version, state)


def plus_repeated(tensor: Tensor, block_N: Tensor) -> Tensor:
    """A contiguous copy of the tensor plus the block, repeated over and over."""
    whole = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    before, after, size = tensor.reshape(-1), whole.view(-1), len(block_N)
    end = len(before) // size * size
    torch.add(before[:end].view(-1, size), block_N, out=after[:end].view(-1, size))
    torch.add(before[end:], block_N[: len(before) - end], out=after[end:])
    return whole


def proof_requests(prompts: Sequence[Prompt], num_engines: int) -> list[Request]:
    """Samples to compare: at least two for each copy of the model, one of them greedy."""
    return [
        Request(
            tokens=prompts[row % len(prompts)].tokens,
            seed=stable_hash("proof", row) % 2**63,
            is_greedy=row == 0,
            copy=row % num_engines,
        )
        for row in range(max(PROOF_ROWS, 2 * num_engines))
    ]


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
