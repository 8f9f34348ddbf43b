"""The rates of a virtual cluster, predicted from the sizes of a run on named GPUs."""

from __future__ import annotations

from rlhf_lab.experiment.planning.layouts.choice import Choice
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.memory import memory_of
from rlhf_lab.experiment.planning.layouts.seconds import (
    DECODING_SHARE,
    READING_SHARE,
    STEP_OPERATIONS,
    reading,
    updating,
    weight_sync,
)
from rlhf_lab.experiment.planning.layouts.workload import Workload


def rates_of(work: Workload, choice: Choice, gpu: Gpu) -> dict[str, float]:
    """Options of config group `cluster` by name, of a layout whose generators have devices of their
    own. A decoding step reads the weights once, and each sequence's cache; the trainer's tokens are
    those of its updates with the reference's pass."""
    policy, parallel = work.policy, choice.tensor_parallel
    bandwidth = DECODING_SHARE * gpu.bandwidth * parallel
    context = work.prompt + work.response / 2
    launches = policy.layers * STEP_OPERATIONS * gpu.graph_node
    flops = READING_SHARE * gpu.flops(choice.dtype) * parallel
    trainers = choice.layout.trainers
    seconds = work.updates * updating(work, choice, gpu)
    if work.reads_reference:
        seconds += reading(work, choice, gpu, policy, work.read_tokens, trainers)
    return {
        "generators": choice.engines,
        "sequences": memory_of(work, choice, gpu).kv_rows,
        "step_seconds": choice.bytes * policy.parameters / bandwidth + launches,
        "step_seconds_per_sequence": choice.bytes * policy.kv_elements * context / bandwidth,
        "prefill_tokens_per_second": flops / policy.reading(work.prompt / 2),
        "round_seconds": 0.0,
        "train_tokens_per_second": work.rows * (work.prompt + work.response) / seconds,
        "sync_seconds": weight_sync(work, choice, gpu),
    }
