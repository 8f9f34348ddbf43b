"""The engines of a run and of its stages, and the teacher of distillation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlhf_lab.experiment.build.policy import Sources
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import generator_precision, sequence_tokens
from rlhf_lab.models.adapters import with_adapters
from rlhf_lab.models.borders import longest_row
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.devices import chosen
from rlhf_lab.models.heads import ValueNetwork, value_model_from, value_model_like
from rlhf_lab.models.options import PretrainedModel, torch_dtype
from rlhf_lab.models.reward_model import load_reward_model
from rlhf_lab.models.right_padded import stores_no_masks
from rlhf_lab.models.weights import meta_model
from rlhf_lab.rewards.model import reads_last_token
from rlhf_lab.rewards.options import scorers
from rlhf_lab.training.engines.broadcast_engine import DONE, BroadcastEngine
from rlhf_lab.training.engines.distributed import Processes, current, together
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.training.engines.options import EngineContext, EngineOptions, SingleEngineOptions
from rlhf_lab.training.engines.parameter_backend import ReferenceUse
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.optim import Optim
from rlhf_lab.training.stages.options import RewardModelOptions, SFTOptions, SupervisedOptions
from rlhf_lab.types.data import ValueModel
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine

# Of the path of the teacher.
KEY = "algo.teacher"


def build_teacher(config: Config, tokenizer: Any) -> Any | None:
    """The frozen language model that algo.teacher names, None where no teacher is named.

    tokenizer: the policy's. Raises UserError if the teacher has another vocabulary or too short a
    context.
    """
    named = config.algo.needs.teacher
    if not named:
        return None
    model, own = load_policy(PretrainedModel("teacher", named), None, 0, KEY)
    if own.get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"{KEY}={named}: its vocabulary is not that of model={config.model.name}, whose tokens "
            "it would read; name a teacher of the policy's family"
        )
    number, size = config.algo.needs.top_tokens or 0, model.config.vocab_size
    if number > size:
        raise UserError(
            f"algo.top_k={number}: the vocabulary of {KEY}={named} has {size} tokens; pass at most "
            "that, or 0 for all"
        )
    context = longest_row(model.config)
    needed = sequence_tokens(config)
    if context is not None and needed > context:
        raise UserError(
            f"{KEY}={named}: its context of {context} tokens is shorter than prompts and responses "
            f"of {needed}; name another teacher, or lower generator.max_new_tokens"
        )
    return model.requires_grad_(False)


def require_same_logits(config: Config, policy: Any, teacher: Any | None) -> None:
    """Refuse a teacher with more or fewer logits than the policy, as padding of one vocabulary
    makes, where tokens of the one are read in the other."""
    if teacher is None or config.algo.needs.top_tokens is None:
        return
    own, its = policy.config.vocab_size, teacher.config.vocab_size
    if own != its:
        raise UserError(
            f"{KEY}={config.algo.needs.teacher} has {its} logits and model={config.model.name} has "
            f"{own}: pass algo.kl=sampled, or a teacher with as many"
        )


@dataclass(frozen=True)
class EngineJob:
    """What every rank builds its part of an engine from. networks: of rank 0 with their weights,
    which it sends to the others. dtypes: of the policy's tensors, by name. is_deterministic:
    whether other ranks take deterministic kernels (models/determinism). teacher: frozen networks
    that are the reference, in one process; None where the policy as it begins is. drawn_in: the
    type of the generators' weights."""

    networks: PolicyWithValues
    dtypes: Mapping[str, torch.dtype]
    options: EngineOptions
    optim: Optim
    use: ReferenceUse
    hidden_size: int
    is_deterministic: bool = False
    teacher: PolicyWithValues | None = None
    drawn_in: torch.dtype = torch.float32

    @property
    def sent(self) -> EngineJob:
        """The job for other ranks: without weights, and with the kernels of rank 0."""
        return replace(
            self,
            networks=meta_model(self.networks),
            is_deterministic=torch.are_deterministic_algorithms_enabled(),
        )

    def engine(self, processes: Processes) -> TrainingEngine:
        """The engine of this process, which owns the networks from now on."""
        device = training_device(self.options.device, processes)
        options = self.options.on(device.type)
        if options.gradient_checkpointing:
            # Not before they are sent: it leaves hooks that cannot be.
            self.networks.save_activations()
        context = EngineContext(
            *(self.networks, self.optim, device, processes, self.use),
            teacher=self.teacher,
            drawn_in=self.drawn_in,
        )
        backend = options.build(context)
        return TrainingEngine(backend, self.dtypes, options, processes, self.hidden_size)

    @contextmanager
    def led(self) -> Iterator[Engine]:
        """The engine of rank 0, for the block; the other ranks make its calls with it, and then
        wait for other work."""
        processes = current()
        if processes.size == 1:
            yield self.engine(processes)
            return
        with together(processes):
            processes.broadcast_call(self.sent)
            engine = self.engine(processes)
        yield BroadcastEngine(engine, processes)
        processes.broadcast_call(DONE)


def engine_job(
    config: Config,
    model: Any,
    values: ValueNetwork | None = None,
    teacher: Any | None = None,
    base: PretrainedModel | None = None,
) -> EngineJob:
    """The engine that a run trains by. It owns model, values and teacher once it is built. base:
    where the model is, which saved adapters name."""
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    drawn_in = torch.float32
    if config.model.lora_rank:
        model = with_adapters(model, config.model.lora, config.seed, base)
        drawn_in = torch_dtype(generator_precision(config)["dtype"])
    device = training_device(config.engine.device, current())
    passes = (
        config.generator.temperature,
        config.engine.share_prompts,
        device if stores_no_masks(device) else None,
    )
    networks = PolicyWithValues(model, values, *passes)
    frozen = None if teacher is None else PolicyWithValues(teacher, None, *passes)
    moves = config.algo.needs.reference_every > 0
    use = ReferenceUse.moves if moves else ReferenceUse.frozen
    return EngineJob(
        networks,
        dtypes,
        config.engine,
        config.optim,
        use,
        model.config.hidden_size,
        teacher=frozen,
        drawn_in=drawn_in,
    )


def build_engine(config: Config, model: Any, values: ValueNetwork | None = None) -> TrainingEngine:
    """The engine of this process, which owns model and values from now on."""
    return engine_job(config, model, values).engine(current())


def training_device(name: str, processes: Processes) -> torch.device:
    """Where this process trains: of several devices of a host, the one of its local rank."""
    device = chosen(name, "engine.device")
    if device.type != "cuda" or device.index is not None:
        return device
    if processes.local_rank >= (count := torch.cuda.device_count()):
        raise UserError(
            f"engine.device={name}: this host has {count} GPUs and starts trainer "
            f"{processes.local_rank + 1}; start as many trainers as GPUs, or pass engine.device=cpu"
        )
    return torch.device("cuda", processes.local_rank)


def build_value_model(
    config: Config, sources: Sources, policy: Any, tokenizer: Any
) -> ValueNetwork | None:
    """The value model that the algorithm needs: from the proxy reward model (N+ detail 22) where
    the run has one of the policy's vocabulary, else from the policy with a head of zeros."""
    kind, bins = config.algo.needs.values, config.algo.needs.bins
    if kind is ValueModel.none:
        return None
    models = scorers("reward", config.reward, sources.proxies)
    if kind is ValueModel.own and models:
        model, own_tokenizer, offset = load_reward_model(*models[0])
        is_alike = reads_last_token(model) and model.config.num_labels == 1
        if is_alike and own_tokenizer.get_vocab() == tokenizer.get_vocab():
            return value_model_from(model, offset, bins)
    return value_model_like(policy, kind is ValueModel.shared, bins)


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
