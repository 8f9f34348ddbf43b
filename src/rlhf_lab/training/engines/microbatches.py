"""The passes of an update, one micro-batch each, and the sums of what they measured."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from rlhf_lab.models.batching import to_device
from rlhf_lab.models.forward import num_chunks, token_rows
from rlhf_lab.models.microbatches import Microbatch, RankShares, trim
from rlhf_lab.models.right_padded import stores_no_masks
from rlhf_lab.models.shared_prompts import packing_is_cheaper
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.training.engines.policy_with_values import PassLayout
from rlhf_lab.types.data import Batch, PolicyOutput

T = TypeVar("T")
# Sums of metrics, and measures of every row.
MicrobatchMetrics = tuple[dict[str, float], dict[str, Tensor]]
NORMS = {"grad_norm": "gradient norm", "value_grad_norm": "gradient norm of the value model"}


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


def passes_of(
    shares: RankShares,
    processes: Processes,
    options: EngineOptions,
    hidden_size: int,
    device: torch.device,
) -> Iterator[MicrobatchStep]:
    """This process's passes over micro-batches, as many as every other process makes."""
    for index, turn in enumerate(shares.turns):
        abreast = [shares.parts[number] for number in turn if number is not None]
        tokens = max(int(part.batch.read_length_B.sum()) for part in abreast)
        is_packed = options.share_prompts and all(
            packing_is_cheaper(token_rows(part.batch), hidden_size, stores_no_masks(device))
            for part in abreast
        )
        number = turn[processes.rank]
        mine = trim(abreast[0].batch, 0, 1) if number is None else shares.parts[number].batch
        yield MicrobatchStep(
            batch=to_device(mine, device),
            number=number,
            layout=PassLayout(num_chunks(tokens, options.logit_tokens), is_packed),
            is_last=index + 1 == len(shares.turns),
        )


def on_host(sums: Mapping[str, Tensor], rows: Mapping[str, Tensor]) -> MicrobatchMetrics:
    """Sums of metrics and measures of every row, brought to the host in one copy: a GPU would be
    waited for at each. Numbers keep their bits, which float64 holds of all of them."""
    tensors = [*sums.values(), *rows.values()]
    flat = torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors]).cpu()
    ends = list(itertools.accumulate(tensor.numel() for tensor in tensors))
    parts = flat.tensor_split(ends[:-1])
    columns = {
        name: part.to(column.dtype).reshape(column.shape)
        for (name, column), part in zip(rows.items(), parts[len(sums) :], strict=True)
    }
    numbers = flat[: len(sums)].tolist()
    return dict(zip(sums, numbers, strict=True)), columns


def zero_loss(policy: PolicyOutput) -> Tensor:
    """A loss of zero whose gradient still passes through everything that was computed."""
    loss = 0 * policy.logp_BT.sum()
    return loss if policy.value_BT is None else loss + 0 * policy.value_BT.sum()


def in_order(everyone: Sequence[Mapping[int, T]]) -> list[tuple[int, T]]:
    """(number of the micro-batch, value) of all processes, by number."""
    return sorted(
        ((number, value) for mine in everyone for number, value in mine.items()),
        key=lambda pair: pair[0],
    )


def sum_metrics(
    everyone: Sequence[Mapping[int, MicrobatchMetrics]], parts: Sequence[Microbatch]
) -> tuple[defaultdict[str, float], dict[str, Tensor]]:
    """Sums of the metrics, and the measures of all rows in the order of the batch. everyone: the
    metrics of each process, by number of the micro-batch."""
    metrics: defaultdict[str, float] = defaultdict(float)
    rows: defaultdict[str, list[Tensor]] = defaultdict(list)
    for _, (sums, measures) in in_order(everyone):
        for name, value in sums.items():
            metrics[name] += value
        for name, column in measures.items():
            rows[name].append(column)
    place_B = torch.cat([part.index_B for part in parts]).argsort()
    return metrics, {name: torch.cat(columns)[place_B] for name, columns in rows.items()}


def required(value_BT: Tensor | None) -> Tensor:
    """The values; without them, the algorithm's `needs` and the engine disagree, which is a bug."""
    if value_BT is None:
        raise RuntimeError("an engine without a value model has no values to return")
    return value_BT


def require_finite(name: str, value: float, learning_rate: float) -> None:
    """Refuse an update that would make the weights not finite."""
    if not math.isfinite(value):
        raise FloatingPointError(
            f"the {name} is {value}: the update was not applied; lower "
            f"optim.lr={learning_rate} or check the rewards"
        )
