"""Starting DeepSpeed: its config, its engines over policy and reference, its silence."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.training.engines.options import DeepSpeedOptions, Precision
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.engines.tensors import adamw
from rlhf_lab.training.engines.zero import (
    FlatBufferStorage,
    PartitionedReference,
    PartitionedStorage,
    Reference,
    ReplicatedReference,
    WholeStorage,
    ZeroStorage,
)
from rlhf_lab.training.optim import Optim

PARTITIONED = 3  # the stage from which on the weights themselves are partitioned


def storage_of(engine: Any, stage: int, rank: int) -> ZeroStorage:
    """The storage of a ZeRO stage."""
    if stage == 0:
        return WholeStorage(engine)
    return PartitionedStorage(engine, rank) if stage == PARTITIONED else FlatBufferStorage(engine)


def make_engine(networks: PolicyWithValues, optim: Optim, options: DeepSpeedOptions) -> Any:
    """DeepSpeed's engine over all parameters, whose optimizer is torch's AdamW."""
    # Stage 0 leaves no trace of the norm that it clips by.
    config = settings(options) | {
        "gradient_clipping": optim.max_grad_norm if options.stage else 0.0
    }
    return initialized(networks, config, optimizer=adamw(networks.parameters(), optim))


def make_reference(
    networks: PolicyWithValues, options: DeepSpeedOptions, rank: int
) -> tuple[Any, Reference]:
    """The frozen reference, partitioned where the policy is: its forward pass, and its tensors."""
    parameters = dict(networks.tensors())
    if options.stage < PARTITIONED:
        with own_buffers(networks):
            networks = networks.to(getattr(torch, options.dtype.value))
        return networks, ReplicatedReference(parameters)
    engine = initialized(networks, settings(options))
    return engine, PartitionedReference(engine, parameters, rank)


def initialized(networks: PolicyWithValues, config: dict[str, Any], **more: Any) -> Any:
    """DeepSpeed's engine over the networks, in evaluation mode.

    Its stage 3 replaces `torch.nn.functional.linear` in the whole process by a function that keeps
    no gathered weights for the backward pass, and that rounds differently. Only linear layers of
    these networks get it here: a generator in the same process samples the bits of one in another.
    """
    import deepspeed

    linear = torch.nn.functional.linear
    try:
        with own_buffers(networks):
            engine, *_ = deepspeed.initialize(model=networks, config=config, **more)
        replaced = torch.nn.functional.linear
    finally:
        torch.nn.functional.linear = linear
    if replaced is not linear:
        for module in networks.modules():
            if isinstance(module, torch.nn.Linear):
                vars(module)["forward"] = partial(of_layer, replaced, module)
    engine.module.eval()
    return engine


def of_layer(linear: Callable[..., Tensor], layer: torch.nn.Linear, values: Tensor) -> Tensor:
    """What a linear layer makes of the values, by a function of values, weight and bias."""
    return linear(values, layer.weight, layer.bias)


@contextmanager
def own_buffers(networks: PolicyWithValues) -> Iterator[None]:
    """Buffers keep their own precision: rotary frequencies in bfloat16 would move positions."""
    before = {name: buffer.clone() for name, buffer in networks.named_buffers()}
    yield
    for name, buffer in networks.named_buffers():
        buffer.data = before[name].to(buffer.device)


def settings(options: DeepSpeedOptions) -> dict[str, Any]:
    """DeepSpeed's config. Micro-batches are made by the engine, so their sizes here are nominal."""
    # What stays whole by its size would be stale once its parts change.
    zero = {"stage": options.stage, "stage3_param_persistence_threshold": 0}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
        "communication_data_type": "fp32",
        "steps_per_print": None,
    }
    if options.dtype is Precision.bfloat16:
        config |= {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    return config


@contextmanager
def quiet(device: torch.device, local_rank: int) -> Iterator[None]:
    """Import and start DeepSpeed without its prints, in the environment that it needs.

    Its operator for collectives in shared memory is not used in training, and would be compiled for
    a minute: it is left out.
    """
    # DeepSpeed reads the number of this process on its host again and again.
    os.environ |= {"DS_ACCELERATOR": device.type, "LOCAL_RANK": str(local_rank)}
    # It calls collectives by names that PyTorch warns of, each time.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    with contextlib.redirect_stdout(io.StringIO()):
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        yield
