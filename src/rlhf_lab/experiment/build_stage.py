"""The engine by which a stage trains its model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from rlhf_lab.experiment.build_engine import EngineJob
from rlhf_lab.experiment.config import Config
from rlhf_lab.models.devices import chosen
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.options import EngineOptions, SingleEngineOptions
from rlhf_lab.training.engines.parameter_backend import ReferenceUse
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.stages.options import RewardModelOptions, SFTOptions, SupervisedOptions
from rlhf_lab.types.protocols import Engine


@dataclass(frozen=True)
class StageEngine:
    """How a stage trains. is_alone: by the first process, whole steps at a time."""

    options: EngineOptions
    stage: SupervisedOptions
    is_alone: bool

    @contextmanager
    def led(self, networks: PolicyWithValues) -> Iterator[Engine]:
        """The engine of rank 0, for the block. It owns the networks, and it has no reference."""
        model = networks.policy
        job = EngineJob(
            networks,
            {name: parameter.dtype for name, parameter in model.named_parameters()},
            self.options,
            self.stage.optim,
            ReferenceUse.none,
            model.config.hidden_size,
        )
        if self.is_alone:
            yield job.engine(Processes())
            return
        with job.led() as engine:
            yield engine


def stage_engine(config: Config, stage: SFTOptions | RewardModelOptions) -> StageEngine:
    """The engine of a stage: the run's own, unless the stage is one of whole steps on a CPU."""
    engine, rows = config.engine, stage.micro_rows
    if is_alone(config, rows):
        sides = 2 if isinstance(stage, RewardModelOptions) else 1
        alone = SingleEngineOptions(
            threads=stage.threads,
            micro_rows=sides * stage.batch,
            micro_tokens=0,
            logit_tokens=0,
            gradient_checkpointing=engine.gradient_checkpointing,
            share_prompts=False,
            device="cpu",
        )
        return StageEngine(alone, stage, is_alone=True)
    options = replace(
        engine,
        threads=stage.threads,
        micro_rows=rows or engine.micro_rows,
        share_prompts=False,
    )
    return StageEngine(options, stage, is_alone=False)


def is_alone(config: Config, micro_rows: int) -> bool:
    """Whether a stage's steps are whole, in one process, on a CPU."""
    return micro_rows == 0 and stage_device(config).type == "cpu"


def stage_device(config: Config) -> torch.device:
    """Where a stage trains."""
    return chosen(config.engine.device, "engine.device")
