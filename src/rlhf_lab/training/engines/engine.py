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
from rlhf_lab.models.batching import Part, moved, split, trimmed
from rlhf_lab.models.forward import num_chunks, texts, torch_threads
from rlhf_lab.models.shared_prompts import saves
from rlhf_lab.runs.memory import memory_for, peak_bytes
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.engine_state import EngineState
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.training.engines.parameter_backend import WEIGHT, ParameterBackend
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout
from rlhf_lab.types.data import Batch, PolicyOutput, Updated, Weights
from rlhf_lab.types.protocols import Algorithm, Correction

T = TypeVar("T")


@dataclass(frozen=True)
class MicrobatchStep:
    """What this process does while each of the others reads a micro-batch of its own.

    number: of the micro-batch among all; None if there was none left, and `batch` is read for
    nothing, so that all processes make the same passes. way: in which every one makes them.
    """

    batch: Batch
    number: int | None
    way: PassLayout
    is_last: bool


class TrainingEngine:
    """Policy, its reference (the policy as given, until it is moved), value model and AdamW.

    dtypes: of the policy's tensors, as `weights` gives them. hidden_size: the policy's.
    """

    def __init__(
        self,
        holder: ParameterBackend,
        dtypes: Mapping[str, torch.dtype],
        options: EngineOptions,
        processes: Processes,
        hidden_size: int,
    ) -> None:
        self._holder = holder
        self._hidden_size = hidden_size
        self._dtypes = dtypes
        self._options = options
        self._processes = processes
        self._carried = EngineState(holder, processes, dtypes)
        self._present: Weights | None = None
        self._check_finite("the starting weights are not finite: they cannot be trained")

    def reference_logp(self, batch: Batch) -> Tensor:
        """Log-probs under the reference, BT, computed once per sample."""
        with self._at("the log-probs of the reference"):
            return self._read(
                batch,
                lambda turn: self._holder.reference(texts(turn.batch), turn.way).logp_BT,
            )

    def logp(self, batch: Batch, weights: Weights) -> Tensor:
        """Log-probs under given weights, BT; the policy itself is as before afterwards."""
        with self._at("the log-probs of a version"), ExitStack() as stack:
            if not self._processes.broadcast_object(weights is self._present):
                stream = self._processes.broadcast_tensors(weights.state)
                stack.enter_context(self._holder.under(stream))
            return self._read(batch, lambda turn: self._output(turn, PassKind.policy).logp_BT)

    def values(self, batch: Batch) -> Tensor:
        """The present value model's word on the states before the response tokens, BT."""
        with self._at("the values"):
            return self._read(
                batch, lambda turn: required(self._output(turn, PassKind.values).value_BT)
            )

    def _output(self, turn: MicrobatchStep, reads: PassKind) -> PolicyOutput:
        return self._holder.output(texts(turn.batch), reads, turn.way)

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

    def _parts(self, batch: Batch) -> list[Part]:
        return list(split(batch, self._options.micro_rows, self._options.micro_tokens))

    def _turns(self, parts: Sequence[Part]) -> Iterator[MicrobatchStep]:
        """This process's micro-batches, on its device: as many as every other process has."""
        size, rank = self._processes.size, self._processes.rank
        count = math.ceil(len(parts) / size)
        for place in range(count):
            abreast = parts[place * size : (place + 1) * size]
            tokens = max(int(part.batch.mask_BT.sum()) for part in abreast)
            is_mine = rank < len(abreast)
            batch = abreast[rank].batch if is_mine else trimmed(abreast[0].batch, 0, 1)
            yield MicrobatchStep(
                batch=moved(batch, self._holder.device),
                number=place * size + rank if is_mine else None,
                way=PassLayout(
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
        with self._holder.reading():
            for turn in self._turns(parts):
                found_BT = read(turn)
                if turn.number is not None:
                    mine[turn.number] = found_BT.cpu()
        whole_BT = torch.zeros_like(batch.mask_BT)
        for number, part_BT in joined(self._processes.gathered(mine)):
            whole_BT[parts[number].index_B, : part_BT.shape[1]] = part_BT
        return whole_BT

    def move_reference(self, decay: float) -> None:
        """Take the reference to decay * itself + (1 - decay) * policy."""
        self._carried.has_moved = True
        self._holder.move_reference(decay)

    def update(
        self, batch: Batch, algo: Algorithm, correction: Correction, learning_rate: float
    ) -> Updated:
        """One optimizer update. Refuses to apply a loss or gradient that is not finite."""
        self._present = None
        parts = self._parts(batch)
        with self._at("the update"):
            mine = self._backward(parts, algo, correction)
            metrics, rows = summed(self._processes.gathered(mine), parts)
            require_finite("loss", metrics["loss"], learning_rate)
            metrics["entropy"] /= float(rows["weight"].sum())
            rate = learning_rate * correction.step(rows["log_ratio_sequence"])
            norms = self._holder.step(rate)
        for name, norm in norms.items():
            require_finite(NORMS[name], norm, rate)
        self._check_finite(f"the weights are not finite after an update at rate {rate}: lower it")
        return Updated({**metrics, **norms, "learning_rate": rate}, rows)

    def _backward(
        self, parts: Sequence[Part], algo: Algorithm, correction: Correction
    ) -> dict[int, Told]:
        """The gradients of this process's micro-batches, and what is to be told of each."""
        mine: dict[int, Told] = {}
        self._holder.begin()
        for turn in self._turns(parts):
            policy = self._output(turn, PassKind.both)
            if turn.number is None:
                self._holder.backward(nothing(policy), turn.is_last)
                continue
            part, factor_BT = corrected(policy.logp_BT, turn.batch, algo, correction)
            output = algo.loss(policy, part)
            self._holder.backward(output.loss, turn.is_last)
            told = {"loss": output.loss, "entropy": (policy.entropy_BT * part.weight_BT).sum()}
            rows = measure(policy.logp_BT, part, output.clipped_BT, factor_BT)
            mine[turn.number] = (
                {name: float(value.detach()) for name, value in {**output.metrics, **told}.items()},
                {name: value.cpu() for name, value in rows.items()},
            )
        return mine

    def _check_finite(self, complaint: str) -> None:
        if not all(self._processes.gathered(self._holder.is_finite())):
            raise FloatingPointError(complaint)

    def weights(self, version: int) -> Weights:
        """An immutable copy of the policy, on the host; of several processes the lead has it."""
        state = {}
        for name, dtype in self._dtypes.items():
            tensor = self._holder.read(name, WEIGHT)
            if self._processes.is_main:
                state[name] = tensor.to(dtype)
        self._present = Weights(version, state)
        return self._present

    def state(self) -> dict[str, Tensor]:
        """Everything else that changes in a run, as whole tensors by parameter (see Carried)."""
        return self._carried.state()

    def restore(self, weights: Weights, state: Mapping[str, Tensor]) -> None:
        """Take over weights and the tensors of `state`, whoever saved them in however many
        processes. Raises UserError if they are of another model."""
        self._carried.restore(weights, state)
        self._present = weights

    def peak_memory(self) -> dict[str, int]:
        """Largest memory so far of any process, in bytes: resident on the host, and allocated on
        its device if it has one."""
        everyone = self._processes.gathered(peak_bytes(self._holder.device))
        return {name: max(peak[name] for peak in everyone) for name in everyone[0]}


Told = tuple[dict[str, float], dict[str, Tensor]]
NORMS = {"grad_norm": "gradient norm", "value_grad_norm": "gradient norm of the value model"}


def nothing(policy: PolicyOutput) -> Tensor:
    """A loss of zero that still asks for the gradient of everything that was read."""
    loss = 0 * policy.logp_BT.sum()
    return loss if policy.value_BT is None else loss + 0 * policy.value_BT.sum()


def joined(everyone: Sequence[Mapping[int, T]]) -> list[tuple[int, T]]:
    """What all processes say of their micro-batches, in the order of these."""
    return sorted(
        ((number, told) for mine in everyone for number, told in mine.items()),
        key=lambda pair: pair[0],
    )


def summed(
    everyone: Sequence[Mapping[int, Told]], parts: Sequence[Part]
) -> tuple[defaultdict[str, float], dict[str, Tensor]]:
    """Sums of the metrics, and the measures of all rows in the order of the whole batch."""
    metrics: defaultdict[str, float] = defaultdict(float)
    rows: defaultdict[str, list[Tensor]] = defaultdict(list)
    for _, (told, measures) in joined(everyone):
        for name, value in told.items():
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
