"""The rates of a virtual cluster, predicted from the sizes of a run on named GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.experiment.planning.layouts.choice import Choice, Workload
from rlhf_lab.experiment.planning.layouts.costs import (
    DECODING_SHARE,
    READING_SHARE,
    STEP_OPERATIONS,
    memory_of,
    reading,
    updating,
    weight_sync,
)
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.search import Plan
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.types.errors import UserError


def rates_of(work: Workload, choice: Choice, gpu: Gpu) -> dict[str, float]:
    """Options of config group `cluster` by name, of a layout whose generators have devices of their
    own. A decoding step reads the weights once, and each sequence's cache; the trainer's tokens are
    those of its updates with the reference's pass."""
    policy, parallel = work.policy, choice.tensor_parallel
    bandwidth = DECODING_SHARE * gpu.bandwidth * parallel
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
        "step_seconds_per_sequence": choice.bytes * policy.kv_elements * work.context / bandwidth,
        "prefill_tokens_per_second": flops / policy.reading(work.prompt / 2),
        "round_seconds": 0.0,
        "train_tokens_per_second": work.rows * work.sequence / seconds,
        "sync_seconds": weight_sync(work, choice, gpu),
    }


def fastest_apart(plans: Sequence[Plan]) -> Choice:
    """The fastest of these plans whose generators have devices of their own, of plans in the order
    of speed. Raises UserError where none has."""
    choice = next((plan.choice for plan in plans if plan.choice.is_apart), None)
    if choice is None:
        raise UserError(
            "no layout that fits has generators on devices of their own, which a virtual cluster "
            "is made of: pass more --devices, or a layout such as layout=1x8:6+2"
        )
    return choice


def cluster_of(work: Workload, choice: Choice, gpu: Gpu, name: str) -> ClusterOptions:
    """The virtual cluster of a layout, in which each sample stands for itself."""
    rates = rates_of(work, choice, gpu)
    return ClusterOptions(
        name=name,
        load_seconds=rates["sync_seconds"],
        row_scale=1.0,
        length_scale=1.0,
        prompt_scale=1.0,
        **rates,  # type: ignore[arg-type]
    )


def comments_of(work: Workload, choice: Choice, gpu: Gpu) -> list[str]:
    """What a cluster was planned for, and how a smaller run stands for it."""
    return [
        f"layout={choice.layout} of {gpu.name}, planned by `rlhf-lab plan`.",
        f"Rounds of {work.rows} samples: {work.lengths}. A smaller run stands for",
        "them by row_scale (samples of a round for each of its own), length_scale and prompt_scale "
        "(tokens for each of its own).",
    ]
