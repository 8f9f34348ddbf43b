"""Starting DeepSpeed: its config, its engines over policy and reference, its silence."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.training.engines.options import DeepSpeedOptions, Precision
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.engines.tensors import adamw
from rlhf_lab.training.engines.zero import (
    FlatBufferStorage,
    PartitionedStorage,
    WholeStorage,
)
from rlhf_lab.training.engines.zero_reference import (
    PartitionedReference,
    Reference,
    ReplicatedReference,
)
from rlhf_lab.training.optim import Optim

PARTITIONED = 3  # the stage from which on the weights themselves are partitioned


def storage_of(
    engine: Any, stage: int, rank: int
) -> WholeStorage | FlatBufferStorage | PartitionedStorage:
    """The storage of a ZeRO stage."""
    if stage == 0:
        return WholeStorage(engine)
    return PartitionedStorage(engine, rank) if stage == PARTITIONED else FlatBufferStorage(engine)


def make_engine(networks: PolicyWithValues, optim: Optim, options: DeepSpeedOptions) -> Any:
    """DeepSpeed's engine over all parameters, whose optimizer is torch's AdamW."""
    import deepspeed

    optimizer = adamw(networks.parameters(), optim)
    buffers = {name: buffer.clone() for name, buffer in networks.named_buffers()}
    # Stage 0 leaves no trace of the norm that it clips by.
    config = settings(options) | {
        "gradient_clipping": optim.max_grad_norm if options.stage else 0.0
    }
    engine, *_ = deepspeed.initialize(model=networks, optimizer=optimizer, config=config)
    restore_buffers(networks, buffers)
    engine.module.eval()
    return engine


def make_reference(
    networks: PolicyWithValues, options: DeepSpeedOptions, rank: int
) -> tuple[Any, Reference]:
    """The frozen reference, partitioned where the policy is: its forward pass, and its tensors."""
    import deepspeed

    parameters = dict(networks.tensors())
    buffers = {name: buffer.clone() for name, buffer in networks.named_buffers()}
    if options.stage < PARTITIONED:
        networks = networks.to(getattr(torch, options.dtype.value))
        restore_buffers(networks, buffers)
        return networks, ReplicatedReference(parameters)
    engine, *_ = deepspeed.initialize(model=networks, config=settings(options))
    restore_buffers(networks, buffers)
    engine.module.eval()
    return engine, PartitionedReference(engine, parameters, rank)


def restore_buffers(networks: PolicyWithValues, buffers: dict[str, Tensor]) -> None:
    """Buffers in their own precision: rotary frequencies in bfloat16 would move positions."""
    for name, buffer in networks.named_buffers():
        buffer.data = buffers[name].to(buffer.device)


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
