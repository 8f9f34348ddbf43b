"""One process owns the weights: optimizer, reference and micro-batches on one device."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.batching import micro_batches
from rlhf_lab.forward import response_output, torch_threads
from rlhf_lab.optim import Optim
from rlhf_lab.types import Algorithm, Batch, Metrics, PolicyOutput, UserError, Weights


@dataclass(frozen=True)
class SingleEngineOptions:
    """Config group `engine`. threads: torch threads per operation of the trainer.

    micro_rows: rows of one forward and backward pass. Gradients do not depend on it beyond
    rounding; memory does.
    """

    name: str = "single"
    threads: int = 1
    micro_rows: int = 128

    def __post_init__(self) -> None:
        for key in ("threads", "micro_rows"):
            if getattr(self, key) < 1:
                raise UserError(f"engine.{key}={getattr(self, key)}: choose 1 or more")


class SingleEngine:
    """Policy, its frozen reference (the policy as given) and AdamW."""

    def __init__(
        self, policy: Any, optim: Optim, options: SingleEngineOptions, temperature: float
    ) -> None:
        self._policy = policy.eval()
        self._reference = copy.deepcopy(policy).eval().requires_grad_(False)
        self._options = options
        self._max_grad_norm = optim.max_grad_norm
        self._temperature = temperature
        self._optimizer = torch.optim.AdamW(
            policy.parameters(),
            lr=optim.lr,
            betas=(optim.beta1, optim.beta2),
            eps=optim.eps,
            weight_decay=optim.weight_decay,
        )

    def reference_logp(self, batch: Batch) -> Tensor:
        """Log-probs under the reference, BT, computed once per sample."""
        logp_BT = torch.zeros_like(batch.mask_BT)
        start = 0
        with torch_threads(self._options.threads), torch.inference_mode():
            for part in micro_batches(batch, self._options.micro_rows):
                part_BT = response_output(self._reference, part, self._temperature).logp_BT
                logp_BT[start : start + len(part), : part_BT.shape[1]] = part_BT
                start += len(part)
        return logp_BT

    def update(self, batch: Batch, algo: Algorithm, learning_rate: float) -> Metrics:
        """One optimizer update. Refuses to apply a loss or gradient that is not finite."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        metrics: Counter[str] = Counter()
        with torch_threads(self._options.threads):
            self._optimizer.zero_grad(set_to_none=True)
            for part in micro_batches(batch, self._options.micro_rows):
                policy = response_output(self._policy, part, self._temperature)
                output = algo.loss(policy, part)
                output.loss.backward()  # type: ignore[no-untyped-call]
                metrics.update(
                    {name: float(value.detach()) for name, value in output.metrics.items()}
                )
                metrics.update(drift(policy, part) | {"loss": float(output.loss.detach())})
            norm = torch.nn.utils.clip_grad_norm_(self._policy.parameters(), self._max_grad_norm)
            if not torch.isfinite(norm):
                raise FloatingPointError(
                    f"the gradient norm is {float(norm)} (loss {metrics['loss']}): the update was "
                    f"not applied; lower optim.lr={learning_rate} or check the rewards"
                )
            self._optimizer.step()
        return {**metrics, "grad_norm": float(norm), "learning_rate": learning_rate}

    def weights(self, version: int) -> Weights:
        """An immutable copy of the policy."""
        state = {
            name: parameter.detach().clone() for name, parameter in self._policy.named_parameters()
        }
        return Weights(version, state)


def drift(policy: PolicyOutput, batch: Batch) -> dict[str, float]:
    """Per-token distances, token-weighted over the rows of an update; they add up over parts.

    behavior: the policy that wrote the rows against the one now training (staleness, drift and
    engine mismatch together). reference: the policy now training against its start. k1 and k3 are
    estimators on the rows' own samples; see algos/common.py for their definitions.
    """
    with torch.no_grad():
        weight_BT = batch.weight_BT
        behind_BT = batch.behavior_logp_BT - policy.logp_BT
        away_BT = policy.logp_BT - batch.reference_logp_BT
        terms = {
            "kl_token/behavior_k1": behind_BT,
            "kl_token/behavior_k3": torch.expm1(-behind_BT) + behind_BT,
            "kl_token/reference_k1": away_BT,
            "kl_token/reference_k3": torch.expm1(-away_BT) + away_BT,
            "entropy_token": policy.entropy_BT,
        }
        return {name: float((term_BT * weight_BT).sum()) for name, term_BT in terms.items()}
