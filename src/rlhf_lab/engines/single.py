"""One process owns the weights: optimizer, reference and micro-batches on one device."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from rlhf_lab.batching import micro_batches
from rlhf_lab.forward import load_weights, response_output, torch_threads
from rlhf_lab.off_policy import measure
from rlhf_lab.optim import Optim
from rlhf_lab.types import Algorithm, Batch, Updated, UserError, Weights


@dataclass(frozen=True)
class SingleEngineOptions:
    """Config group `engine`. threads: torch threads per operation of the trainer.

    micro_rows: rows of one forward and backward pass. Gradients do not depend on it beyond
    rounding; memory does.
    """

    name: str = "single"
    threads: int = 1
    micro_rows: int = 32

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

        self._check_finite("the starting weights are not finite: they cannot be trained")

    def reference_logp(self, batch: Batch) -> Tensor:
        """Log-probs under the reference, BT, computed once per sample."""
        return self._read(self._reference, batch)

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        """Log-probs under given weights, BT; the policy itself is not touched."""
        state = dict(weights.state)
        return self._read(lambda **given: functional_call(self._policy, state, (), given), batch)

    def _read(self, model: Any, batch: Batch) -> Tensor:
        logp_BT = torch.zeros_like(batch.mask_BT)
        start = 0
        with torch_threads(self._options.threads), torch.inference_mode():
            for part in micro_batches(batch, self._options.micro_rows):
                part_BT = response_output(model, part, self._temperature).logp_BT
                logp_BT[start : start + len(part), : part_BT.shape[1]] = part_BT
                start += len(part)
        return logp_BT

    def update(self, batch: Batch, algo: Algorithm, learning_rate: float) -> Updated:
        """One optimizer update. Refuses to apply a loss or gradient that is not finite."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        metrics: Counter[str] = Counter()
        rows: list[dict[str, Tensor]] = []
        with torch_threads(self._options.threads):
            self._optimizer.zero_grad(set_to_none=True)
            for part in micro_batches(batch, self._options.micro_rows):
                policy = response_output(self._policy, part, self._temperature)
                output = algo.loss(policy, part)
                require_finite("loss", output.loss, learning_rate)
                output.loss.backward()  # type: ignore[no-untyped-call]
                metrics.update(
                    {name: float(value.detach()) for name, value in output.metrics.items()}
                )
                entropy = (policy.entropy_BT * part.weight_BT).sum()
                metrics.update({"loss": float(output.loss.detach()), "entropy": float(entropy)})
                rows.append(measure(policy.logp_BT, part, output.clipped_BT))
            norm = torch.nn.utils.clip_grad_norm_(self._policy.parameters(), self._max_grad_norm)
            require_finite("gradient norm", norm, learning_rate)
            self._optimizer.step()
        self._check_finite(
            f"the weights are not finite after an update at optim.lr={learning_rate}: lower it"
        )
        return Updated(
            {**metrics, "grad_norm": float(norm), "learning_rate": learning_rate},
            {name: torch.cat([part[name] for part in rows]) for name in rows[0]},
        )

    def _check_finite(self, complaint: str) -> None:
        """A sum is finite only if all of its terms are (overflow aside, which is no better)."""
        total = torch.stack([p.detach().float().sum() for p in self._policy.parameters()]).sum()
        if not torch.isfinite(total):
            raise FloatingPointError(complaint)

    def weights(self, version: int) -> Weights:
        """An immutable copy of the policy."""
        state = {
            name: parameter.detach().clone() for name, parameter in self._policy.named_parameters()
        }
        return Weights(version, state)

    def state(self) -> dict[str, Tensor]:
        """The optimizer's tensors, by parameter: `<name of the parameter>/<name in AdamW>`."""
        names = [name for name, _ in self._policy.named_parameters()]
        held = self._optimizer.state_dict()["state"]
        return {
            f"{names[place]}/{key}": value.clone()
            for place, values in held.items()
            for key, value in values.items()
        }

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        """Take over weights and the tensors of `state`."""
        load_weights(self._policy, weights)
        places = {name: n for n, (name, _) in enumerate(self._policy.named_parameters())}
        held: defaultdict[int, dict[str, Tensor]] = defaultdict(dict)
        for key, value in state.items():
            name, _, part = key.rpartition("/")
            held[places[name]][part] = value.clone()
        whole = self._optimizer.state_dict()
        self._optimizer.load_state_dict({**whole, "state": dict(held)})


def require_finite(name: str, value: Tensor, learning_rate: float) -> None:
    """Refuse an update that would spoil the weights."""
    if not torch.isfinite(value):
        raise FloatingPointError(
            f"the {name} is {float(value.detach())}: the update was not applied; lower "
            f"optim.lr={learning_rate} or check the rewards"
        )
