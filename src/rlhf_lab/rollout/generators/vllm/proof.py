"""Whether vLLM has the weights that it was given: its log-probs against transformers'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.models.devices import torch_threads
from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.generators.vllm.requests import Answer, EngineFailure, Request
from rlhf_lab.types.data import Weights
from rlhf_lab.types.heartbeat import beat
from rlhf_lab.types.randomness import stable_hash

NOISE = 0.1
FLOOR = 0.02


@dataclass(frozen=True)
class Gap:
    """Absolute differences of log-probs over all tokens that were looked at."""

    mean: float
    largest: float


class Proof:
    """Compares answers with a forward pass of the same weights in transformers.

    load_model: makes the policy; it is kept between proofs only if `keep`. tolerance: of the mean.
    """

    def __init__(
        self,
        load_model: Callable[[], Any],
        temperature: float,
        tolerance: float,
        threads: int,
        keep: bool,
    ) -> None:
        self._load_model = load_model
        self._temperature = temperature
        self._tolerance = tolerance
        self._threads = threads
        self._keep = keep
        self._model: Any = None

    def require(
        self, weights: Weights, name: str, requests: Sequence[Request], answers: Sequence[Answer]
    ) -> Gap:
        """The gap of these answers. Raises EngineFailure where it is too large to be rounding."""
        gap = self._gap(weights, requests, answers)
        # Written so that NaN is refused too.
        if not gap.mean <= self._tolerance:
            raise EngineFailure(
                f"vLLM does not have the weights that it was given (version {name}): log-probs "
                f"differ from transformers' by {gap.mean:.3g} in the mean and {gap.largest:.3g} at "
                f"most (generator.prove_tolerance allows a mean of {self._tolerance:g}); no sample "
                "was used. A lower precision (generator.dtype) needs a higher tolerance; anything "
                "else is a fault in vLLM's loading of this model: use generator=hf"
            )
        return gap

    def _gap(self, weights: Weights, requests: Sequence[Request], answers: Sequence[Answer]) -> Gap:
        model = self._load_model() if self._model is None else self._model
        self._model = model if self._keep else None
        load_weights(model, weights)
        with torch_threads(self._threads), torch.inference_mode():
            differences = [
                self._difference(model, request, answer)
                for request, answer in zip(requests, answers, strict=True)
            ]
        difference_N = torch.cat(differences)
        return Gap(float(difference_N.mean()), float(difference_N.max()))

    def _difference(self, model: Any, request: Request, answer: Answer) -> Tensor:
        """|log-prob differences| of one answer's tokens, T."""
        beat()
        row_1S = torch.tensor([[*request.tokens, *answer.tokens]], device=model.device)
        token_T = row_1S[0, len(request.tokens) :]
        logits_TV = model(input_ids=row_1S, use_cache=False).logits[0, len(request.tokens) - 1 : -1]
        logp_TV = torch.log_softmax(logits_TV.float() / self._temperature, dim=-1)
        logp_T = logp_TV.gather(1, token_T.unsqueeze(1)).squeeze(1).cpu()
        return (logp_T - torch.tensor(answer.logps)).abs()


def perturbed(weights: Weights) -> Weights:
    """Every tensor a tenth away from where it was, so that one which does not arrive shows.

    An engine that has read the same checkpoint by itself would pass a proof of it untouched.
    """
    state = {}
    for name, tensor in weights.state.items():
        rng = torch.Generator().manual_seed(stable_hash("proof", name) % 2**63)
        noise = torch.randn(tensor.shape, generator=rng)
        size = max(NOISE * float(tensor.float().square().mean().sqrt()), FLOOR)
        state[name] = (tensor.detach().float().cpu() + size * noise).to(tensor.dtype)
    return Weights(weights.version, state)
