"""Memory of each device: what trainers and generators hold at their peak, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_lab.experiment.planning.layouts.choice import Choice
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.shapes import ModelShape
from rlhf_lab.experiment.planning.layouts.workload import Workload

# Float32 weights, their gradients and the two moments of AdamW.
TRAINED_BYTES = 16
FLOAT_BYTES = 4
# What CUDA, cuBLAS and NCCL take of each device.
CONTEXT = 1.5e9
# Gaps of the caching allocator, as a share of what is allocated.
GAPS = 1.05
# Copies of a chunk's logits in float32: themselves, their log-softmax and the gradient.
LOGIT_COPIES = 3
# The share of a device that vLLM takes where it is alone there.
VLLM_SHARE = 0.9


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes at the peak of the fullest device of each kind. kv_rows: samples whose key-value cache
    fits on one generator; its bytes are counted for as many samples as are decoded at once."""

    trainer: float
    generator: float
    kv_rows: int

    @property
    def most(self) -> float:
        return max(self.trainer, self.generator)


def memory_of(work: Workload, choice: Choice, gpu: Gpu) -> DeviceMemory:
    """The memory of the lead trainer's device, which also scores, and of a generator's."""
    trainer = trained(work, choice) + passes(work, choice) + scoring(work, choice)
    weights = choice.bytes * work.policy.parameters / choice.tensor_parallel
    of_row = choice.bytes * work.policy.kv_elements * work.longest / choice.tensor_parallel
    if choice.is_apart:
        room = VLLM_SHARE * gpu.memory - CONTEXT - weights
        rows = min(-(-work.rows // choice.engines), int(room / of_row))
        # vLLM takes the cache as one block, without gaps.
        generator = CONTEXT + weights + max(1, rows) * of_row
        return DeviceMemory(CONTEXT + GAPS * trainer, generator, rows)
    chunk = work.chunk_rows[0]
    wider = FLOAT_BYTES / choice.bytes if work.draws_in_float32 else 1
    whole = CONTEXT + GAPS * (trainer + wider * (weights + chunk * of_row))
    return DeviceMemory(whole, 0.0, chunk)


def trained(work: Workload, choice: Choice) -> float:
    """Bytes of weights, gradients and optimizer state of one trainer, and of the reference."""
    policy, share = work.policy, choice.layout.trainers
    networks = 1 + work.value_models
    if work.has_adapters:
        return choice.bytes * policy.parameters / share
    states = TRAINED_BYTES * networks * policy.parameters / share
    reference = choice.bytes * policy.parameters / share
    if choice.engine == "single":
        # Autocast keeps the half-precision copies of all weights until the backward pass is over.
        copies = choice.bytes * policy.parameters if choice.dtype != "float32" else 0
        return states + reference + networks * copies
    return states + reference + gathered(policy, choice) * networks


def gathered(policy: ModelShape, choice: Choice) -> float:
    """Bytes of what FSDP gathers at once: two layers, and the embeddings with a float32 gradient of
    the layer that is reduced."""
    if choice.layout.trainers == 1:
        return choice.bytes * policy.parameters
    embeddings = policy.embedding * (1 if policy.is_tied else 2)
    return choice.bytes * (2 * policy.layer_weights + embeddings) + 4 * policy.layer_weights


def passes(work: Workload, choice: Choice) -> float:
    """Bytes of the activations of one micro-batch and of a chunk of its logits."""
    policy, tokens = work.policy, max(choice.micro_tokens, work.longest)
    of_layer = policy.activations * choice.bytes
    kept = of_layer * policy.layers
    if choice.checkpointing:
        kept = of_layer + policy.hidden * choice.bytes * policy.layers
    logit_tokens = min(work.logit_tokens or tokens, tokens)
    return tokens * kept + LOGIT_COPIES * 4 * logit_tokens * policy.vocabulary


def scoring(work: Workload, choice: Choice) -> float:
    """Bytes of the reward models and of one pass of theirs, which run on the lead's device."""
    weights = sum(choice.bytes * scorer.parameters for scorer in work.scorers)
    return weights + max(
        (choice.bytes * work.longest * 32 * scorer.activations for scorer in work.scorers),
        default=0.0,
    )
