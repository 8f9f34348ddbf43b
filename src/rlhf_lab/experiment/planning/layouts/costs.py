"""Memory and seconds that a layout takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlhf_lab.experiment.planning import ideal_timeline
from rlhf_lab.experiment.planning.layouts.choice import BYTES, Choice, HandOver, Workload
from rlhf_lab.experiment.planning.layouts.gpus import Gpu
from rlhf_lab.experiment.planning.layouts.shapes import ModelShape
from rlhf_lab.types.precision import Precision

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
# Padded tokens of a reward model's pass on a GPU: reward.micro_rows=32 of 512 tokens.
SCORED_TOKENS = 32 * 512
# Shares of large products' speed that passes over real models reach; that of training by the update
# of 1B that docs/gpu.md has.
TRAINING_SHARE, READING_SHARE = 0.33, 0.5
# The share of the memory's bandwidth that a step of decoding reaches.
DECODING_SHARE = 0.8
# Nodes of a CUDA graph that a layer's step of decoding is as long as, beside reading memory: of
# vLLM's kernels, and of ours, by the steps that docs/gpu.md has.
STEP_OPERATIONS, OWN_STEP_OPERATIONS = 35, 84
# Launches of a small operation that the host takes for a layer, forward and backward: 270 kernels
# with autograd and autocast, by the update of 410M that docs/gpu.md has; forward, a third of them.
TRAINING_OPERATIONS = 1250
FORWARD_OPERATIONS = TRAINING_OPERATIONS / 3
# Bytes a second of weights that one host thread takes from one process to another, in four passes,
# and of copies between a device and pinned memory.
BY_PROCESS, PINNED = 1e9, 55e9
# Samples that vLLM decodes at once by default, with this memory and with less.
VLLM_SEQS, VLLM_SEQS_BELOW, VLLM_LARGE = 1024, 256, 70 * 2**30
# Bytes that fused AdamW reads and writes for each parameter.
OPTIMIZER_BYTES = 28
# A link between nodes, one direction: 400 Gbit/s InfiniBand.
BETWEEN_NODES = 50e9
# Micro-batches are dealt whole: the fullest rank has about half of one more than the mean.
UNEVEN = 0.5


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
    width = BYTES[scored_in(work, choice)]
    weights = sum(width * scorer.parameters for scorer in work.scorers)
    tokens = max(work.longest, SCORED_TOKENS)
    return weights + width * tokens * max((s.activations for s in work.scorers), default=0.0)


def scored_in(work: Workload, choice: Choice) -> str:
    """The type in which reward models compute; auto is that of the passes of training."""
    return choice.dtype if work.scores_in is Precision.auto else work.scores_in.value


@dataclass(frozen=True)
class RoundSeconds:
    """Seconds of a round. weights: of the generators where they have devices of their own, else of
    the trainers. trainer_wait: the share of the round in which trainers wait for samples."""

    generate: float
    score: float
    reference: float
    update: float
    weights: float
    whole: float
    trainer_wait: float

    @property
    def train(self) -> float:
        """Seconds of passes in the trainer's lane."""
        return self.reference + self.update


def seconds_of(work: Workload, choice: Choice, gpu: Gpu, kv_rows: int) -> RoundSeconds:
    """A round of a long run. kv_rows: samples whose cache one generator has room for. Generators on
    devices of their own load versions in their own time."""
    generate = generation(work, choice, gpu, kv_rows)
    scored = replace(choice, dtype=scored_in(work, choice))
    score = sum(
        reading(work, scored, gpu, scorer, work.rows * work.sequence, 1) for scorer in work.scorers
    )
    reference = 0.0
    if work.reads_reference:
        trainers = choice.layout.trainers
        reference = reading(work, choice, gpu, work.policy, work.read_tokens, trainers)
    update = work.updates * updating(work, choice, gpu)
    weights = weight_sync(work, choice, gpu)
    drawn, taught = generate + score, reference + update
    if choice.is_apart:
        drawn += weights
    else:
        taught += weights
    lane = ideal_timeline.Repeating(work.chunk_rows, [drawn / work.rows], [taught])
    found = ideal_timeline.totals(lane, work.num_rounds, *overlap(work, choice))
    return RoundSeconds(
        generate,
        score,
        reference,
        update,
        weights,
        found.wall / work.num_rounds,
        found.trainer_wait / found.wall,
    )


def overlap(work: Workload, choice: Choice) -> tuple[int, int]:
    """Staleness and lanes of generators: rounds overlap only on devices of their own."""
    is_beside = choice.is_apart and work.staleness > 0
    return work.staleness, int(is_beside)


def reading(
    work: Workload, choice: Choice, gpu: Gpu, model: ModelShape, tokens: float, devices: int
) -> float:
    """Seconds of forward passes over so many tokens on so many devices, the head on responses."""
    operations = tokens * model.reading(work.longest / 2) + work.rows * work.response * model.head
    arithmetic = operations / devices / (READING_SHARE * gpu.flops(choice.dtype))
    count = -(-tokens // (devices * choice.micro_tokens))
    return max(arithmetic, count * model.layers * FORWARD_OPERATIONS * gpu.launch)


def updating(work: Workload, choice: Choice, gpu: Gpu) -> float:
    """Seconds of one optimizer update: passes, gathering of weights between trainers, AdamW."""
    policy, trainers = work.policy, choice.layout.trainers
    networks = 1 + work.value_models
    heads = work.trained_rows * work.response * policy.head
    passes = 4 if choice.checkpointing else 3
    operations = passes * (work.update_tokens * policy.reading(work.longest / 2) + heads)
    parts = work.update_tokens / choice.micro_tokens
    turns = -(-parts // trainers)
    stretch = 1.0 if trainers == 1 else 1 + UNEVEN / turns
    arithmetic = operations * stretch / trainers / (TRAINING_SHARE * gpu.flops(choice.dtype))
    launches = turns * policy.layers * TRAINING_OPERATIONS * gpu.launch
    moved = 0.0
    if trainers > 1:
        # Weights are gathered forward and backward, float32 gradients are scattered.
        of_pass = (2 * choice.bytes + 4) * policy.parameters
        link = gpu.link if choice.layout.nodes == 1 else min(gpu.link, BETWEEN_NODES)
        moved = turns * of_pass / link
    adamw = OPTIMIZER_BYTES * policy.parameters / trainers / gpu.bandwidth
    return networks * (max(arithmetic, launches, moved) + adamw)


def generation(work: Workload, choice: Choice, gpu: Gpu, kv_rows: int) -> float:
    """Seconds in which all samples of a round are written: prompts are read once for a group and
    observations once, then rows are decoded."""
    policy, rows = work.policy, -(-work.rows // choice.engines)
    speed = READING_SHARE * gpu.flops(choice.dtype) * choice.tensor_parallel
    prompts = work.groups / choice.engines * work.prompt
    prefill = prompts * policy.reading(work.prompt / 2) / speed
    prefill += rows * work.observed * policy.reading(work.context) / speed
    steps, step = decoding(work, choice, gpu, kv_rows)
    return prefill + steps * step


def decoding(work: Workload, choice: Choice, gpu: Gpu, kv_rows: int) -> tuple[float, float]:
    """Steps of one generator in a round, and seconds of a mean step, which reads the weights once,
    and each row's cache. Rows that are decoded together last as long as the longest response;
    where an ended row makes room for another, that holds of the last ones alone."""
    policy = work.policy
    rows = -(-work.rows // choice.engines)
    together = decoded_together(work, choice, gpu, kv_rows)
    refills = choice.is_apart or work.refills
    longest = max(work.limit, work.response)
    steps = rows / together * longest
    if refills and (not work.prefetched or work.prefetched >= work.rows):
        steps = (rows / together - 1) * work.response + longest
    # Our own loop keeps ended rows, and pads to the longest.
    active = rows * work.response / steps if refills else together
    context = work.context if refills else max(work.context, work.longest - longest / 2)
    cache = active * context * policy.kv_elements
    moved = choice.bytes * (policy.parameters + cache) / choice.tensor_parallel
    operations = active * (policy.reading(context) + policy.head)
    speed = READING_SHARE * gpu.flops(choice.dtype) * choice.tensor_parallel
    step = max(moved / (DECODING_SHARE * gpu.bandwidth), operations / speed)
    nodes = STEP_OPERATIONS if refills else OWN_STEP_OPERATIONS
    return steps, step + policy.layers * nodes * gpu.graph_node


def decoded_together(work: Workload, choice: Choice, gpu: Gpu, kv_rows: int) -> float:
    """Rows of one step of one generator: what its cache, its settings and the chunks that were
    given to it in advance allow."""
    rows = -(-work.rows // choice.engines)
    limits: list[float] = [rows, kv_rows]
    if choice.is_apart:
        own = VLLM_SEQS if gpu.memory >= VLLM_LARGE else VLLM_SEQS_BELOW
        limits += [work.max_num_seqs or own]
        limits += [work.prefetched / choice.engines] if work.prefetched else []
    return max(1, min(limits))


def weight_sync(work: Workload, choice: Choice, gpu: Gpu) -> float:
    """Seconds until a version has reached the generators: over links or through the host to other
    devices, as `generator.sync` is, else as `hand_over` is. auto is NCCL between nodes."""
    size = choice.bytes * work.policy.parameters
    is_far = choice.layout.nodes > 1
    if not choice.is_apart:
        rates = {
            HandOver.process: BY_PROCESS,
            HandOver.host: PINNED / 2,
            HandOver.device: gpu.bandwidth / 2,
        }
        return size / rates[work.hand_over]
    if work.sync == "nccl" or (work.sync == "auto" and is_far):
        return size / (min(gpu.link, BETWEEN_NODES) if is_far else gpu.link)
    return size / BY_PROCESS
