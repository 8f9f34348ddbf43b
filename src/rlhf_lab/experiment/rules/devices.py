"""Rules of devices, trainers and the virtual cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import generator_devices, num_devices
from rlhf_lab.models.devices import CACHE_BYTES, FIXED_WORKSPACES, WORKSPACE, chosen
from rlhf_lab.rewards.fields import AUTO
from rlhf_lab.rewards.options import named_parts
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.mode import ExecutorKind, WhenStale
from rlhf_lab.runs.kernels import Kernels
from rlhf_lab.runs.kernels import require as require_kernels
from rlhf_lab.runs.provenance import usable_cores
from rlhf_lab.training.engines.ranks import world_size
from rlhf_lab.types.errors import UserError, refuse_first_of
from rlhf_lab.types.precision import Precision


def check_kernels(config: Config) -> None:
    """Portable kernels are the processor's, and this process must be started for them."""
    if config.kernels is Kernels.native:
        return
    if config.generator.has_own_kernels:
        raise UserError(
            f"kernels=portable with generator={config.generator.name}: vLLM has kernels of its "
            "own; pass generator=hf, or kernels=native"
        )
    named = [(f"{part}.device", getattr(config, part).device) for part in ("engine", "generator")]
    for key, device in [*named, *reward_devices(config)]:
        if chosen(device, key).type != "cpu":
            raise UserError(
                f"kernels=portable with {key}={device}: a GPU has kernels of its own; pass "
                f"{key}=cpu, or kernels=native"
            )
    require_kernels(config.kernels, world_size())


def check_own_kernels(config: Config) -> None:
    """PyTorch's flag does not reach a generator with kernels of its own."""
    if config.deterministic and config.generator.has_own_kernels:
        raise UserError(
            f"deterministic=true with generator={config.generator.name}: vLLM has kernels of its "
            "own, whose sums depend on what else is in a batch; pass generator=hf, or "
            "deterministic=false"
        )


def check_workspace(config: Config) -> None:
    """Ranks of torchrun start CUDA before they know the config."""
    if not config.deterministic or world_size() == 1:
        return
    is_cuda = chosen(config.engine.device, "engine.device").type == "cuda"
    if is_cuda and os.environ.get(WORKSPACE) not in FIXED_WORKSPACES:
        raise UserError(
            f"deterministic=true with {world_size()} processes: set "
            f"{WORKSPACE}={FIXED_WORKSPACES[0]} in the environment of torchrun, or pass "
            "deterministic=false"
        )


def check_trainers(config: Config, count: int) -> None:
    """Several processes need an engine that shares the work among them."""
    if count > 1 and not config.engine.shares_work:
        raise UserError(
            f"engine=single with {count} trainers (WORLD_SIZE): one process would train and the "
            "others wait; pass engine=fsdp or engine=deepspeed, or start without torchrun"
        )


def reward_devices(config: Config) -> Iterator[tuple[str, str]]:
    """Key and value of every device that a reward model names."""
    for node in ("reward", "judge"):
        for key, part in named_parts(node, getattr(config, node)):
            if part.device != AUTO:
                yield f"{key}.device", part.device


def full_precision(config: Config) -> str:
    """A warning of float32 passes on a GPU; '' without them."""
    if not is_gpu(config.engine.device, "engine.device"):
        return ""
    options = config.engine.on("cuda")
    if options.dtype is Precision.bfloat16 or options.tf32:
        return ""
    return (
        f"engine.dtype={options.dtype.value} on a GPU takes about ten times as long as bfloat16: "
        "pass engine.dtype=bfloat16, which keeps float32 weights in the optimizer, or "
        "engine.tf32=true"
    )


def is_gpu(device: str, key: str) -> bool:
    """Whether an option's device is a GPU. Raises UserError where this machine lacks it."""
    return device != "cpu" and chosen(device, key).type == "cuda"


def check_devices(config: Config) -> None:
    """The devices must be there, one for each of the engine's processes."""
    options = config.engine
    check_trainers(config, world_size())
    chosen(options.device, "engine.device")
    chosen(config.generator.device, "generator.device")
    if config.eval.every:
        chosen(config.eval.device, "eval.device")
    for key, device in reward_devices(config):
        chosen(device, key)
    generator_devices(config)
    if ":" in options.device and world_size() > 1:
        raise UserError(
            f"engine.device={options.device} with {world_size()} processes (WORLD_SIZE): all would "
            "train on one device; pass engine.device=auto, which gives each its own"
        )


def check_threads(config: Config) -> None:
    """Generators that are threads share torch's number of threads with the trainer."""
    threads = (config.generator.threads, config.engine.threads)
    if config.mode.executor is ExecutorKind.thread and threads[0] != threads[1]:
        raise UserError(
            f"generator.threads={threads[0]} and engine.threads={threads[1]} with "
            "mode.executor=thread: threads of one process share the setting; make them equal or "
            "pass mode.executor=process"
        )
    if config.engine.tf32 and config.mode.executor is ExecutorKind.thread:
        raise UserError(
            "engine.tf32=true with mode.executor=thread: generators that are threads of the "
            "trainer would compute with it now and then; pass mode.executor=process"
        )


def idle_cores(config: Config, model: Any) -> str:
    """Advice where a model that a CPU cannot hold in its caches leaves cores idle; '' where none
    is. The default is not the machine's number, since bits depend on the number of threads."""
    is_small = sum(parameter.nbytes for parameter in model.parameters()) < CACHE_BYTES
    if is_small or world_size() > 1 or chosen(config.engine.device).type != "cpu":
        return ""
    cores, used, background = usable_cores(), num_devices(config), config.mode.num_background
    each = max(1, cores // (1 + background))
    if used >= each * (1 + background):
        return ""
    return (
        f"this run computes on {used} of {cores} cores; engine.threads={each} "
        f"generator.threads={each} takes all of them, with other bits"
    )


def check_cluster(config: Config) -> None:
    """A virtual cluster must be used, fit the chunks, and write what it trains on by itself."""
    if not config.mode.is_virtual:
        refuse_unused(config.cluster, config.mode.name)
        return
    cluster, generator = config.cluster, config.generator
    rows = min(generator.chunk_groups, config.run.groups_generated) * config.run.group_size
    refusals = (
        (
            rows > cluster.rows,
            f"cluster.sequences={cluster.sequences}: a generator cannot write the {rows} samples "
            f"of a chunk at the same time, of {cluster.row_scale:g} sequences each; lower "
            f"generator.chunk_groups={generator.chunk_groups}, or raise cluster.sequences",
        ),
        (
            not generator.draws_samples or bool(config.run.offline_share),
            "fixed answers, which no generator writes: pass generator=hf and run.offline_share=0",
        ),
        (
            bool(config.mode.segment_tokens),
            f"mode.segment_tokens={config.mode.segment_tokens}: the cluster's clock gives a "
            "sample its versions; pass mode.segment_tokens=0 and cluster.weight_update=interrupt",
        ),
        (
            config.run.remembers_prompts,
            f"run.prompts={config.run.prompts.value}: rounds mix the prompts of several rounds; "
            "pass run.prompts=stream",
        ),
        (
            cluster.follows_versions and generator.has_own_kernels,
            f"cluster.weight_update={cluster.weight_update.value} and generator={generator.name}: "
            "it cannot take new weights at a given token; pass generator=hf, or "
            "cluster.weight_update=drain",
        ),
        (
            cluster.follows_versions and config.mode.when_stale is WhenStale.drop,
            f"cluster.weight_update={cluster.weight_update.value} and mode.when_stale=drop: "
            "weights would be needed that are older than any sample may be; pass "
            "mode.when_stale=wait, or cluster.weight_update=drain",
        ),
    )
    refuse_first_of(refusals, "mode=virtual with")


def refuse_unused(cluster: ClusterOptions, mode: str) -> None:
    """Refuse a cluster that nothing runs on."""
    default = ClusterOptions()
    for column in fields(cluster):
        value = getattr(cluster, column.name)
        if value != getattr(default, column.name):
            raise UserError(
                f"cluster.{column.name}={getattr(value, 'value', value)} with mode={mode}: only "
                "mode=virtual runs on the virtual cluster; pass mode=virtual, or leave it out"
            )
