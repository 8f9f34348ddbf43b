"""Batches of random tokens, and engines of random models, as a round would make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from rlhf_lab.experiment.build_engine import build_engine
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.models.value_model import value_model_like
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.training.engines.options import EngineOptions
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import Batch, ValueModel
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Sample

TEMPERATURE = 0.7
LOGP = -6.0


def groups_of(chunk: Chunk, vocab: int, shortest: int, longest: int) -> list[Group]:
    """Random answers to a chunk's prompts, of lengths between two bounds, with random rewards."""
    rng = torch.Generator().manual_seed(3)

    def number(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (1,), generator=rng))

    def sample() -> Sample:
        tokens = torch.randint(1, vocab, (number(shortest, longest),), generator=rng).tolist()
        return Sample(tuple(tokens), (LOGP,) * len(tokens), 0, Finish.eos, "")

    return [
        Group(
            prompt,
            tuple(sample() for _ in range(chunk.group_size)),
            tuple(float(number(-9, 9)) + place for place in range(chunk.group_size)),
        )
        for prompt in chunk.prompts
    ]


def engine_of(
    model: Any,
    options: EngineOptions,
    values: ValueModel = ValueModel.none,
    optim: Optim | None = None,
) -> TrainingEngine:
    """An engine that owns the model, as a run builds it."""
    network = None
    if values is not ValueModel.none:
        network = value_model_like(model, is_shared=values is ValueModel.shared)
    config: Any = SimpleNamespace(
        engine=options,
        optim=optim or Optim(lr=1e-3),
        model=SimpleNamespace(lora_rank=0),
        generator=SimpleNamespace(temperature=TEMPERATURE),
        algo=SimpleNamespace(needs=SimpleNamespace(reference_every=0)),
        seed=1,
    )
    return build_engine(config, model, network)


def update_batch(engine: TrainingEngine, algo: Algorithm, groups: Sequence[Group]) -> Batch:
    """The rows of one update, with all that losses compare with."""
    batch = collate(groups, pad_id=0)
    reference_BT = engine.reference_logp(batch)
    batch = replace(
        batch,
        reference_logp_BT=reference_BT,
        behavior_logp_BT=reference_BT,
        proximal_logp_BT=reference_BT,
    )
    if algo.needs.values is not ValueModel.none:
        batch = replace(batch, value_BT=engine.values(batch))
    credit = algo.credit(rewards_of(groups), batch)
    (part,) = minibatches(batch, credit, algo.reduction, 1, torch.arange(len(groups)))
    return part
