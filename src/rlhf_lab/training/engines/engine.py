"""The engine of every holder of parameters: micro-batches, losses, measures, states."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from rlhf_lab.algos.off_policy import corrected, measure
from rlhf_lab.models.batching import Microbatch, split, to_device, trim
from rlhf_lab.models.forward import num_chunks, texts, torch_threads
from rlhf_lab.models.shared_prompts import saves
from rlhf_lab.runs.memory import memory_for, peak_bytes
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.engine_state import EngineState
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.training.engines.parameter_backend import WEIGHT, ParameterBackend
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout
from rlhf_lab.types.data import Batch, PolicyOutput, UpdateResult, Weights
from rlhf_lab.types.protocols import Algorithm, Correction

T = TypeVar("T")


@dataclass(frozen=True)
class MicrobatchStep:
    """One pass of this process, while every other process passes a micro-batch of its own.

    number: of the micro-batch among all. None if none was left for this process: it passes `batch`
    and discards the result, because all processes must make the same passes.
    """

    batch: Batch
    number: int | None
    layout: PassLayout
    is_last: bool


class TrainingEngine:
    """Policy, its reference (the policy as given, until it is moved), value model and AdamW.

    dtypes: of the policy's tensors, as `weights` gives them. hidden_size: the policy's.
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
        self._present: Weights | None = None
        self._check_finite("the starting weights are not finite: they cannot be trained")

    def reference_logp(self, batch: Batch) -> Tensor:
        """Log-probs under the reference, BT, computed once per sample."""
        with self._at("the log-probs of the reference"):
            return self._read(
                batch,
                lambda step: self._backend.reference(texts(step.batch), step.layout).logp_BT,
            )

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        """Log-probs under given weights, BT; the policy itself is as before afterwards."""
        with self._at("the log-probs of a version"), ExitStack() as stack:
            if not self._processes.broadcast_object(weights is self._present):
                stream = self._processes.broadcast_tensors(weights.state)
                stack.enter_context(self._backend.with_weights(stream))
            return self._read(batch, lambda step: self._output(step, PassKind.policy).logp_BT)

    def values(self, batch: Batch) -> Tensor:
        """The present value model's word on the states before the response tokens, BT."""
        with self._at("the values"):
            return self._read(
                batch, lambda step: required(self._output(step, PassKind.values).value_BT)
            )

    def _output(self, step: MicrobatchStep, kind: PassKind) -> PolicyOutput:
        return self._backend.output(texts(step.batch), kind, step.layout)

    @contextmanager
    def _at(self, phase: str) -> Iterator[None]:
        options = self._options
        keys = f"engine.micro_rows={options.micro_rows}"
        if options.micro_tokens:
            keys += f" or engine.micro_tokens={options.micro_tokens}"
        if options.logit_tokens != 1:
            keys += f", engine.logit_tokens={options.logit_tokens}"
        if not options.gradient_checkpointing:
            keys += ", or pass engine.gradient_checkpointing=true"
        with torch_threads(options.threads), memory_for(phase, keys):
            yield

    def _parts(self, batch: Batch) -> list[Microbatch]:
        return list(split(batch, self._options.micro_rows, self._options.micro_tokens))

    def _steps(self, parts: Sequence[Microbatch]) -> Iterator[MicrobatchStep]:
        """This process's micro-batches, on its device: as many as every other process has."""
        size, rank = self._processes.size, self._processes.rank
        count = math.ceil(len(parts) / size)
        for place in range(count):
            abreast = parts[place * size : (place + 1) * size]
            tokens = max(int(part.batch.mask_BT.sum()) for part in abreast)
            is_mine = rank < len(abreast)
            batch = abreast[rank].batch if is_mine else trim(abreast[0].batch, 0, 1)
            yield MicrobatchStep(
                batch=to_device(batch, self._backend.device),
                number=place * size + rank if is_mine else None,
                layout=PassLayout(
                    num_chunks(tokens, self._options.logit_tokens),
                    self._options.share_prompts
                    and all(saves(texts(part.batch), self._hidden_size) for part in abreast),
                ),
                is_last=place + 1 == count,
            )

    def _read(self, batch: Batch, read: Callable[[MicrobatchStep], Tensor]) -> Tensor:
        """What is read of every row, BT, on the host."""
        parts = self._parts(batch)
        mine: dict[int, Tensor] = {}
        with self._backend.no_gradients():
            for step in self._steps(parts):
                found_BT = read(step)
                if step.number is not None:
                    mine[step.number] = found_BT.cpu()
        whole_BT = torch.zeros_like(batch.mask_BT)
        for number, part_BT in joined(self._processes.all_gather_object(mine)):
            whole_BT[parts[number].index_B, : part_BT.shape[1]] = part_BT
        return whole_BT

    def move_reference(self, decay: float) -> None:
        """Take the reference to decay * itself + (1 - decay) * policy."""
        self._engine_state.has_moved = True
        self._backend.move_reference(decay)

    def update(
        self, batch: Batch, algo: Algorithm, correction: Correction, learning_rate: float
    ) -> UpdateResult:
        """One optimizer update. Refuses to apply a loss or gradient that is not finite."""
        self._present = None
        parts = self._parts(batch)
        with self._at("the update"):
            mine = self._backward(parts, algo, correction)
            metrics, rows = summed(self._processes.all_gather_object(mine), parts)
            require_finite("loss", metrics["loss"], learning_rate)
            metrics["entropy"] /= float(rows["weight"].sum())
            rate = learning_rate * correction.step(rows["log_ratio_sequence"])
            norms = self._backend.step(rate)
        for name, norm in norms.items():
            require_finite(NORMS[name], norm, rate)
        self._check_finite(f"the weights are not finite after an update at rate {rate}: lower it")
        return UpdateResult({**metrics, **norms, "learning_rate": rate}, rows)

    def _backward(
        self, parts: Sequence[Microbatch], algo: Algorithm, correction: Correction
    ) -> dict[int, MicrobatchMetrics]:
        """Add the gradients of this process's micro-batches; returns the metrics of each."""
        mine: dict[int, MicrobatchMetrics] = {}
        self._backend.begin()
        for step in self._steps(parts):
            policy = self._output(step, PassKind.both)
            if step.number is None:
                self._backend.backward(nothing(policy), step.is_last)
                continue
            part, factor_BT = corrected(policy.logp_BT, step.batch, algo, correction)
            output = algo.loss(policy, part)
            self._backend.backward(output.loss, step.is_last)
            entropy = (policy.entropy_BT * part.weight_BT).sum()
            sums = {**output.metrics, "loss": output.loss, "entropy": entropy}
            rows = measure(policy.logp_BT, part, output.clipped_BT, factor_BT)
            mine[step.number] = (
                {name: float(value.detach()) for name, value in sums.items()},
                {name: value.cpu() for name, value in rows.items()},
            )
        return mine

    def _check_finite(self, complaint: str) -> None:
        if not all(self._processes.all_gather_object(self._backend.is_finite())):
            raise FloatingPointError(complaint)

    def weights(self, version: int) -> Weights:
        """An immutable copy of the policy in host memory; empty on all ranks but the main one."""
        state = {}
        for name, dtype in self._dtypes.items():
            tensor = self._backend.read(name, WEIGHT)
            if self._processes.is_main:
                state[name] = tensor.to(dtype)
        self._present = Weights(version, state)
        return self._present

    def state(self) -> dict[str, Tensor]:
        """Everything else that changes in a run, as whole tensors (see EngineState)."""
        return self._engine_state.state()

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        """Take over weights and the tensors of `state`, whoever saved them in however many
        processes. Raises UserError if they are of another model."""
        self._engine_state.restore(weights, state)
        self._present = weights

    def peak_memory(self) -> dict[str, int]:
        """Largest memory so far of any process, in bytes: resident on the host, and allocated on
        its device if it has one."""
        everyone = self._processes.all_gather_object(peak_bytes(self._backend.device))
        return {name: max(peak[name] for peak in everyone) for name in everyone[0]}


MicrobatchMetrics = tuple[dict[str, float], dict[str, Tensor]]
NORMS = {"grad_norm": "gradient norm", "value_grad_norm": "gradient norm of the value model"}


def nothing(policy: PolicyOutput) -> Tensor:
    """A loss of zero that still asks for the gradient of everything that was read."""
    loss = 0 * policy.logp_BT.sum()
    return loss if policy.value_BT is None else loss + 0 * policy.value_BT.sum()


def joined(everyone: Sequence[Mapping[int, T]]) -> list[tuple[int, T]]:
    """The values of all processes, in the order of the micro-batches that they belong to."""
    return sorted(
        ((number, value) for mine in everyone for number, value in mine.items()),
        key=lambda pair: pair[0],
    )


def summed(
    everyone: Sequence[Mapping[int, MicrobatchMetrics]], parts: Sequence[Microbatch]
) -> tuple[defaultdict[str, float], dict[str, Tensor]]:
    """Sums of the metrics, and the measures of all rows in the order of the whole batch."""
    metrics: defaultdict[str, float] = defaultdict(float)
    rows: defaultdict[str, list[Tensor]] = defaultdict(list)
    for _, (sums, measures) in joined(everyone):
        for name, value in sums.items():
            metrics[name] += value
        for name, column in measures.items():
            rows[name].append(column)
    place_B = torch.cat([part.index_B for part in parts]).argsort()
    return metrics, {name: torch.cat(columns)[place_B] for name, columns in rows.items()}


def required(value_BT: Tensor | None) -> Tensor:
    """A bug if it is missing: the algorithm said that it needs values."""
    if value_BT is None:
        raise RuntimeError("values were asked of an engine without a value model")
    return value_BT


def require_finite(name: str, value: float, learning_rate: float) -> None:
    """Refuse an update that would spoil the weights."""
    if not math.isfinite(value):
        raise FloatingPointError(
            f"the {name} is {value}: the update was not applied; lower "
            f"optim.lr={learning_rate} or check the rewards"
        )
