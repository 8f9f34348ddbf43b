"""One process owns the weights: optimizer, reference and micro-batches on one device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from rlhf_lab.batching import micro_batches
from rlhf_lab.forward import load_weights, response_output, response_values, torch_threads
from rlhf_lab.models.adapters import (
    adapter_parameters,
    adapters_off,
    base_state,
    has_adapters,
    merged_state,
    reference_of,
)
from rlhf_lab.off_policy import corrected, measure
from rlhf_lab.optim import Optim
from rlhf_lab.types import (
    Algorithm,
    Batch,
    Correction,
    PolicyOutput,
    Updated,
    UserError,
    Weights,
)

VALUES = "values"
REFERENCE = "reference"
ADAPTER = "adapter"


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
    """Policy, its reference (the policy as given, until it is moved), value model and AdamW.

    A policy with adapters is its own reference, with them off, and they are all that is trained.
    values: a network of its own, a head on the policy (no body), or None.
    """

    def __init__(
        self,
        policy: Any,
        optim: Optim,
        options: SingleEngineOptions,
        temperature: float,
        values: Any | None = None,
    ) -> None:
        self._policy = policy.eval()
        self._reference = reference_of(policy)
        self._has_moved = False
        self._values = values
        self._is_shared = values is not None and values.body is None
        self._options = options
        self._max_grad_norm = optim.max_grad_norm
        self._temperature = temperature
        self._optimizer = torch.optim.AdamW(
            [parameter for _, parameter in self._trained()],
            lr=optim.lr,
            betas=(optim.beta1, optim.beta2),
            eps=optim.eps,
            weight_decay=optim.weight_decay,
        )

        self._check_finite("the starting weights are not finite: they cannot be trained")

    def _trained(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Everything that the optimizer trains, by name: the policy first."""
        for name, parameter in self._policy.named_parameters():
            if parameter.requires_grad:
                yield name, parameter
        if self._values is not None:
            yield from self._values.named_parameters(prefix=VALUES)

    def reference_logp(self, batch: Batch) -> Tensor:
        """Log-probs under the reference, BT, computed once per sample."""
        with adapters_off(self._reference) as reference:
            return self._read(lambda part: self._logp(reference, part), batch)

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        """Log-probs under given weights, BT; the policy itself is not touched."""
        state = base_state(self._policy, weights.state)

        def model(**given: Any) -> Any:
            return functional_call(self._policy, state, (), given)

        with adapters_off(self._policy):
            return self._read(lambda part: self._logp(model, part), batch)

    def values(self, batch: Batch) -> Tensor:
        """The present value model's word on the states before the response tokens, BT."""
        # The policy is asked only where its own hidden states are what is read.
        own = None if self._is_shared else self._values
        if own is not None:
            return self._read(lambda part: response_values(own, part), batch)
        return self._read(lambda part: required(self._output(part).value_BT), batch)

    def _logp(self, model: Any, part: Batch) -> Tensor:
        return response_output(model, part, self._temperature).logp_BT

    def _read(self, read: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        found_BT = torch.zeros_like(batch.mask_BT)
        start = 0
        with torch_threads(self._options.threads), torch.inference_mode():
            for part in micro_batches(batch, self._options.micro_rows):
                part_BT = read(part)
                found_BT[start : start + len(part), : part_BT.shape[1]] = part_BT
                start += len(part)
        return found_BT

    def _output(self, part: Batch) -> PolicyOutput:
        if self._values is None or self._is_shared:
            return response_output(self._policy, part, self._temperature, self._values)
        policy = response_output(self._policy, part, self._temperature)
        return replace(policy, value_BT=response_values(self._values, part))

    def move_reference(self, decay: float) -> None:
        """Take the reference to decay * itself + (1 - decay) * policy."""
        self._has_moved = True
        with torch.no_grad():
            pairs = zip(self._reference.parameters(), self._policy.parameters(), strict=True)
            for reference, policy in pairs:
                reference.lerp_(policy, 1 - decay)

    def update(
        self, batch: Batch, algo: Algorithm, correction: Correction, learning_rate: float
    ) -> Updated:
        """One optimizer update. Refuses to apply a loss or gradient that is not finite."""
        metrics: defaultdict[str, float] = defaultdict(float)
        rows: list[dict[str, Tensor]] = []
        with torch_threads(self._options.threads):
            self._optimizer.zero_grad(set_to_none=True)
            for part in micro_batches(batch, self._options.micro_rows):
                policy = self._output(part)
                part, factor_BT = corrected(policy.logp_BT, part, algo, correction)
                output = algo.loss(policy, part)
                require_finite("loss", output.loss, learning_rate)
                output.loss.backward()  # type: ignore[no-untyped-call]
                told = {"loss": output.loss, "entropy": (policy.entropy_BT * part.weight_BT).sum()}
                for name, value in {**output.metrics, **told}.items():
                    metrics[name] += float(value.detach())
                rows.append(measure(policy.logp_BT, part, output.clipped_BT, factor_BT))
            joined = {name: torch.cat([part[name] for part in rows]) for name in rows[0]}
            metrics["entropy"] /= float(joined["weight"].sum())
            rate = learning_rate * correction.step(joined["log_ratio_sequence"])
            norms = self._step(rate)
        self._check_finite(f"the weights are not finite after an update at rate {rate}: lower it")
        return Updated({**metrics, **norms, "learning_rate": rate}, joined)

    def _step(self, learning_rate: float) -> dict[str, float]:
        """Clip the gradients of policy and value model, each by itself, and apply them."""
        norm = torch.nn.utils.clip_grad_norm_(self._policy.parameters(), self._max_grad_norm)
        require_finite("gradient norm", norm, learning_rate)
        norms = {"grad_norm": float(norm)}
        if self._values is not None:
            norm = torch.nn.utils.clip_grad_norm_(self._values.parameters(), self._max_grad_norm)
            require_finite("gradient norm of the value model", norm, learning_rate)
            norms["value_grad_norm"] = float(norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        return norms

    def _check_finite(self, complaint: str) -> None:
        """A sum is finite only if all of its terms are (overflow aside, which is no better)."""
        total = torch.stack([p.detach().float().sum() for _, p in self._trained()]).sum()
        if not torch.isfinite(total):
            raise FloatingPointError(complaint)

    def weights(self, version: int) -> Weights:
        """An immutable copy of the policy, adapters merged."""
        return Weights(version, merged_state(self._policy))

    def state(self) -> dict[str, Tensor]:
        """The optimizer's tensors by parameter, `<name of the parameter>/<name in AdamW>`, and the
        tensors of adapters, value model and moved reference, `<name>/adapter`, `<name>/values` and
        `<name>/reference`."""
        names = [name for name, _ in self._trained()]
        held = self._optimizer.state_dict()["state"]
        found = {
            f"{names[place]}/{key}": value.clone()
            for place, values in held.items()
            for key, value in values.items()
        }
        return found | {key: value.detach().clone() for key, value in self._carried()}

    def _carried(self) -> Iterator[tuple[str, Tensor]]:
        """What changes in a run besides a whole policy and the optimizer's own tensors."""
        for name, parameter in adapter_parameters(self._policy).items():
            yield f"{name}/{ADAPTER}", parameter
        if self._values is not None:
            for name, parameter in self._values.named_parameters(prefix=VALUES):
                yield f"{name}/{VALUES}", parameter
        if self._has_moved:
            for name, parameter in self._reference.named_parameters():
                yield f"{name}/{REFERENCE}", parameter

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        """Take over weights and the tensors of `state`."""
        if not has_adapters(self._policy):
            load_weights(self._policy, weights)
        self._has_moved = any(key.endswith(f"/{REFERENCE}") for key in state)
        carried = dict(self._carried())
        with torch.no_grad():
            for key, tensor in carried.items():
                tensor.copy_(state[key])
        places = {name: n for n, (name, _) in enumerate(self._trained())}
        held: defaultdict[int, dict[str, Tensor]] = defaultdict(dict)
        for key, value in state.items():
            name, _, part = key.rpartition("/")
            if key not in carried:
                held[places[name]][part] = value.clone()
        whole = self._optimizer.state_dict()
        self._optimizer.load_state_dict({**whole, "state": dict(held)})


def required(value_BT: Tensor | None) -> Tensor:
    """A bug if it is missing: the algorithm said that it needs values."""
    if value_BT is None:
        raise RuntimeError("values were asked of an engine without a value model")
    return value_BT


def require_finite(name: str, value: Tensor, learning_rate: float) -> None:
    """Refuse an update that would spoil the weights."""
    if not torch.isfinite(value):
        raise FloatingPointError(
            f"the {name} is {float(value.detach())}: the update was not applied; lower "
            f"optim.lr={learning_rate} or check the rewards"
        )
