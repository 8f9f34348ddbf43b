"""The plain training loop that the supervised stages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from rlhf_lab.models.devices import torch_threads
from rlhf_lab.training.optim import one_cycle


class Bar(Protocol):
    """Where progress goes."""

    def advance(self, amount: int = 1, **numbers: float) -> None: ...


def fit(
    model: Any,
    loss_of_step: Callable[[int], Tensor],
    num_steps: int,
    lr: float,
    threads: int,
    bar: Bar,
) -> list[float]:
    """AdamW with a one-cycle rate and gradients clipped at norm 1; the loss of every step.

    The model stays in eval mode: no dropout anywhere in the pipeline (N+ detail 7).
    """
    model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    losses = []
    with torch_threads(threads):
        for step in range(num_steps):
            for group in optimizer.param_groups:
                group["lr"] = lr * one_cycle(step, num_steps)
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of_step(step)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
            if losses[-1] != losses[-1]:
                raise FloatingPointError(f"the loss is NaN at step {step}: lower lr={lr}")
            bar.advance(1, loss=losses[-1])
    return losses
