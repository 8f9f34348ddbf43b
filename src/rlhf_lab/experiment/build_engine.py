"""The training side of a run: the engine and the value model of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.derived import precision
from rlhf_lab.experiment.sources import Sources
from rlhf_lab.models.adapters import with_adapters
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
from rlhf_lab.training.engines.options import EngineContext, EngineOptions
from rlhf_lab.training.engines.parameter_backend import ReferenceUse
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.data import ValueModel
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Engine


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
        drawn_in = torch_dtype(precision(config)["generator"]["dtype"])
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
