"""The training engine: passes over micro-batches, losses, optimizer updates, state.

One class for every ParameterBackend (one device, FSDP, DeepSpeed). Of several processes, each takes
its share of the micro-batches, and all make the same calls in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from rlhf_lab.algos.declared import seen_by_algorithm
from rlhf_lab.algos.off_policy import corrected, fitted, measure, split_terms
from rlhf_lab.models.devices import tensor_float, torch_threads
from rlhf_lab.models.forward import of_policy, token_rows
from rlhf_lab.models.microbatches import RankShares, rank_split
from rlhf_lab.runs.memory import memory_for, peak_bytes
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.engine_state import EngineState, other_model
from rlhf_lab.training.engines.microbatches import (
    NORMS,
    MicrobatchMetrics,
    MicrobatchStep,
    in_order,
    on_host,
    passes_of,
    require_finite,
    required,
    sum_metrics,
    zero_loss,
)
from rlhf_lab.training.engines.options import EngineOptions, Versions
from rlhf_lab.training.engines.parameter_backend import ParameterBackend
from rlhf_lab.training.engines.policy_with_values import PassKind
from rlhf_lab.types.data import Batch, PolicyOutput, UpdateResult, Weights
from rlhf_lab.types.protocols import Correction, Loss, Shards


def copied(tensor: Tensor, stays: bool) -> Tensor:
    """A copy in memory of its own, on its device if it stays there, else on the host.

    Memory of the host that a GPU copies to is pinned: such a copy goes at the speed of the bus and
    runs beside those after it. It is complete after `settle`.
    """
    if stays or tensor.device.type == "cpu":
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return host.copy_(tensor.detach(), non_blocking=True)


def settle(copies: Iterable[Tensor], device: torch.device) -> None:
    """Wait until copies from this device are complete, so that any thread may read them."""
    if device.type == "cuda" and any(True for _ in copies):
        torch.cuda.current_stream(device).synchronize()


# Stands for the norm of a response without a gradient, such as one without tokens.
TINY = 1e-30


class TrainingEngine:
    """Policy, reference (the initial policy, until it is moved), value model and AdamW.

    dtypes: of the policy's tensors, by name, as `weights` returns them. hidden_size: the policy's.
    """

    def __init__(
        self,
        backend: ParameterBackend,
        dtypes: Mapping[str, torch.dtype],
        options: EngineOptions,
        processes: Processes,
        hidden_size: int,
    ) -> None:
        self._backend = backend
        self._hidden_size = hidden_size
        self._dtypes = dtypes
        self._options = options
        self._processes = processes
        self._engine_state = EngineState(backend, processes, dtypes)
        self._latest: Weights | None = None
        self._check_finite("the starting weights are not finite: they cannot be trained")

    def reference_logp(self, batch: Batch) -> Tensor:
        """Log-probs of the responses under the reference, BT."""
        with self._phase("the log-probs of the reference"):
            return self._read(batch, lambda step: self._reference(step).logp_BT)

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        """Log-probs of the responses under the given weights, BT. The policy does not change."""
        with self._phase("the log-probs of a version"), self._having(weights):
            return self._read(batch, lambda step: self._output(step, PassKind.policy).logp_BT)

    def entropy(self, batch: Batch, weights: Weights) -> Tensor:
        """Entropies of the distributions of the response tokens under the given weights, in nats,
        BT. The policy does not change."""
        with self._phase("the entropies of a version"), self._having(weights):
            return self._read(batch, lambda step: self._output(step, PassKind.policy).entropy_BT)

    @contextmanager
    def _having(self, weights: Weights) -> Iterator[None]:
        """The policy with these weights, for reading."""
        with ExitStack() as stack:
            if not self._processes.broadcast_object(weights is self._latest):
                stream = self._processes.broadcast_tensors(weights.state)
                stack.enter_context(self._backend.with_weights(stream))
            yield

    def values(self, batch: Batch) -> Tensor:
        """Values of the states before the response tokens, BT, by the present value model."""
        with self._phase("the values"):
            return self._read(
                batch, lambda step: required(self._output(step, PassKind.values).value_BT)
            )

    def ratio_gradients(self, batch: Batch) -> Tensor:
        """See `Batch.log_ratio_gradient_B`. Every response is read by itself, since its gradient
        is."""
        backend = self._backend
        found = []
        with self._phase("the gradients of single responses"):
            for row in torch.arange(len(batch)):
                backend.begin()
                (step,) = self._steps(self._shares(batch.rows(row.unsqueeze(0))))
                logp_BT = self._output(step, PassKind.policy).logp_BT
                ratio_BT = (logp_BT - step.batch.behavior_logp_BT) * step.batch.mask_BT
                log_ratio = ratio_BT.sum()
                backend.backward(log_ratio, is_last=True)
                # The gradient of a ratio is the ratio times that of its log.
                found.append(log_ratio.item() + math.log(max(backend.gradient_norm(), TINY)))
            backend.begin()
        return torch.tensor(found)

    def _output(self, step: MicrobatchStep, kind: PassKind) -> PolicyOutput:
        found = self._backend.output(token_rows(step.batch), kind, step.layout)
        return of_policy(found, step.batch)

    def _reference(self, step: MicrobatchStep) -> PolicyOutput:
        found = self._backend.reference(token_rows(step.batch), step.layout)
        return of_policy(found, step.batch)

    def _trained(self, step: MicrobatchStep, algo: Loss) -> PolicyOutput:
        """A pass with gradients, at the tokens that the reference finds most likely if the
        algorithm needs their log-probs."""
        number = algo.needs.top_tokens
        if number is None:
            return self._output(step, PassKind.both)
        rows = token_rows(step.batch)
        with torch.no_grad():
            found = self._backend.reference(rows._replace(top=number), step.layout)
        policy = self._backend.output(rows._replace(top=found.top_BTK), PassKind.both, step.layout)
        policy = replace(policy, reference_top_logp_BTK=found.top_logp_BTK)
        return of_policy(policy, step.batch)

    @contextmanager
    def _phase(self, phase: str) -> Iterator[None]:
        options = self._options
        keys = f"engine.micro_rows={options.micro_rows}"
        if options.micro_tokens:
            keys += f" or engine.micro_tokens={options.micro_tokens}"
        if options.logit_tokens != 1:
            keys += f", engine.logit_tokens={options.logit_tokens}"
        if not options.gradient_checkpointing:
            keys += ", or pass engine.gradient_checkpointing=true"
        tf32 = tensor_float(options.tf32 and self._backend.device.type == "cuda")
        with torch_threads(options.threads), tf32, memory_for(phase, keys):
            yield

    def _shares(self, batch: Batch) -> RankShares:
        options = self._options
        return rank_split(batch, options.micro_rows, options.micro_tokens, self._processes.size)

    def _steps(self, shares: RankShares) -> Iterator[MicrobatchStep]:
        device = self._backend.device
        return passes_of(shares, self._processes, self._options, self._hidden_size, device)

    def _read(self, batch: Batch, read: Callable[[MicrobatchStep], Tensor]) -> Tensor:
        """Run `read` on every micro-batch, without gradients: its results for all rows, BT, on the
        host."""
        shares = self._shares(batch)
        mine: dict[int, Tensor] = {}
        with self._backend.no_gradients():
            for step in self._steps(shares):
                result = read(step)
                if step.number is not None:
                    mine[step.number] = result.cpu()
        whole_BT = torch.zeros_like(batch.mask_BT)
        for number, part in in_order(self._processes.all_gather_object(mine)):
            whole_BT[shares.parts[number].index_B, : part.shape[1]] = part
        return whole_BT

    def move_reference(self, decay: float) -> None:
        """reference <- decay * reference + (1 - decay) * policy."""
        self._engine_state.has_moved = True
        self._backend.move_reference(decay)

    def update(
        self, batch: Batch, algo: Loss, correction: Correction, learning_rate: float
    ) -> UpdateResult:
        """One optimizer update. Refuses to apply a loss or gradient that is not finite."""
        self._latest = None
        shares = self._shares(batch)
        with self._phase("the update"):
            mine = self._backward(shares, algo, fitted(batch, correction))
            metrics, rows = sum_metrics(self._processes.all_gather_object(mine), shares.parts)
            require_finite("loss", metrics["loss"], learning_rate)
            metrics["entropy"] /= float(rows["weight"].sum())
            rate = learning_rate * correction.step(rows["log_ratio_sequence"])
            measured = self._backend.step(rate)
        for name in NORMS:
            require_finite(NORMS[name], measured.get(name, 0.0), rate)
        self._check_finite(f"the weights are not finite after an update at rate {rate}: lower it")
        return UpdateResult({**metrics, **measured, "learning_rate": rate}, rows)

    def _backward(
        self, shares: RankShares, algo: Loss, correction: Correction
    ) -> dict[int, MicrobatchMetrics]:
        """Add the gradients of this process's micro-batches; returns the metrics of each."""
        mine: dict[int, MicrobatchMetrics] = {}
        self._backend.begin()
        for step in self._steps(shares):
            policy = self._trained(step, algo)
            if step.number is None:
                self._backend.backward(zero_loss(policy), step.is_last)
                continue
            part, factor_BT = corrected(policy.logp_BT, step.batch, algo, correction)
            output = algo.loss(policy, seen_by_algorithm(part, algo))
            self._backend.backward(output.loss, step.is_last)
            entropy = (policy.entropy_BT * part.weight_BT).sum()
            sums = {**output.metrics, "loss": output.loss, "entropy": entropy}
            more = split_terms(policy.logp_BT, part, algo, correction)
            rows = measure(policy.logp_BT, part, output.clipped_BT, factor_BT, more)
            mine[step.number] = on_host(sums, rows)
        return mine

    def _check_finite(self, complaint: str) -> None:
        if not all(self._processes.all_gather_object(self._backend.is_finite())):
            raise FloatingPointError(complaint)

    def weights(self, version: int) -> Weights:
        """An immutable copy of the policy, in host memory unless the options keep versions on the
        device; empty on all ranks but the main one."""
        state = {}
        stays = self._options.versions is Versions.device
        for name, dtype in self._dtypes.items():
            tensor = self._backend.weight(name, dtype)
            if self._processes.is_main:
                state[name] = copied(tensor, stays)
        settle(state.values(), self._backend.device)
        self._latest = Weights(version, state, self._backend.adapters())
        return self._latest

    def whole(self, weights: Weights) -> Weights:
        """A version of a checkpoint with its weights: adapters are merged here, where they were
        merged before. The policy is at that version afterwards, and `restore` comes next. Raises
        UserError if they are of another model."""
        if weights.adapters is None:
            return weights
        try:
            self._backend.fill(weights)
        except ValueError as error:
            raise other_model(str(error)) from error
        return self.weights(weights.version)

    def state(self) -> dict[str, Tensor]:
        """Everything else that changes in a run, as whole tensors (see EngineState)."""
        return self._engine_state.state()

    def sharded(self) -> EngineState | None:
        """What writes the state by shards, where several processes have them."""
        return self._engine_state if self._engine_state.is_sharded else None

    def write_shards(self, folder: Path) -> Shards | None:
        """See EngineState; the main rank calls it by `sharded`."""
        return self._engine_state.write_shards(folder)

    def finish_shards(self) -> None:
        self._engine_state.finish_shards()

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        """Load weights and the tensors of `state`, saved by any engine in any number of processes.
        Raises UserError if they are of another model."""
        self._engine_state.restore(weights, state)
        self._latest = weights

    def peak_memory(self) -> dict[str, int]:
        """Peak memory so far of the process that took most, in bytes: resident on the host, and
        allocated on its GPU if it has one."""
        everyone = self._processes.all_gather_object(peak_bytes(self._backend.device))
        return {name: max(peak[name] for peak in everyone) for name in everyone[0]}
