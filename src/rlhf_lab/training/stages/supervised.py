"""The training loop that the supervised stages share: updates of an engine, as in a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rlhf_lab.algos.corrections.none import NoCorrection
from rlhf_lab.training.stages.supervised_options import SupervisedOptions
from rlhf_lab.types.data import Batch, Needs, Objective, Reduction
from rlhf_lab.types.protocols import Engine, Loss


class Bar(Protocol):
    """Where progress goes."""

    def advance(self, amount: int = 1, **numbers: float) -> None: ...


@dataclass(frozen=True)
class SupervisedLoss:
    """A loss of the supervised stages: it reads no other policy than the one that it trains."""

    reduction: ClassVar[Reduction] = Reduction.token_mean
    objective: ClassVar[Objective] = Objective.comparison
    needs: ClassVar[Needs] = Needs()


def fit(
    engine: Engine,
    data_of_step: Callable[[int], tuple[Batch, Loss]],
    num_steps: int,
    options: SupervisedOptions,
    bar: Bar,
) -> list[float]:
    """Updates at the rates of the options; the loss of every step.

    The model stays in eval mode: no dropout anywhere in the pipeline (N+ detail 7).
    """
    losses = []
    for step in range(num_steps):
        batch, loss = data_of_step(step)
        rate = options.rate(step, num_steps)
        losses.append(engine.update(batch, loss, NoCorrection(), rate).metrics["loss"])
        bar.advance(1, loss=losses[-1])
    return losses
