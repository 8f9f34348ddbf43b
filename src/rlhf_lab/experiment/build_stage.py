"""The engine by which a stage trains its model, and what of it decides the stage's bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlhf_lab.experiment.build_engine import EngineJob
from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.experiment.own_code import digests
from rlhf_lab.experiment.run_products import BY_ENGINE
from rlhf_lab.models.devices import chosen
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.options import EngineOptions, SingleEngineOptions
from rlhf_lab.training.engines.parameter_backend import ReferenceUse
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.training.stages.reward_model_options import RewardModelOptions
from rlhf_lab.training.stages.sft_options import SFTOptions
from rlhf_lab.training.stages.supervised_options import SupervisedOptions
from rlhf_lab.types.protocols import Engine

# Options of an engine that change no bits of what it trains, or that stages do not have.
NOT_OF_STAGES = ("device", "gradient_checkpointing", "share_prompts", "threads", "micro_rows")


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


def engine_key(config: Config, stage: SFTOptions | RewardModelOptions) -> dict[str, Any]:
    """What of the engine decides a stage's bits, for its key; nothing for whole steps on a CPU."""
    if is_alone(config, stage.micro_rows):
        return {}
    engine = stage_engine(config, stage).options
    kept = {k: v for k, v in plain(engine).items() if k not in NOT_OF_STAGES}
    code = {"own_code": own} if (own := digests([("engine", engine)])) else {}
    return {BY_ENGINE: kept | code | {"micro_rows": engine.micro_rows, "processes": world_size()}}
