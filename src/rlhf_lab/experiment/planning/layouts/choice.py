"""A layout of trainers and generators, and the work that it shares out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.config.layout import Layout
from rlhf_lab.experiment.planning.layouts.shapes import ModelShape, shape_of_model
from rlhf_lab.experiment.rules.derived import (
    chunks_in_advance,
    observation_tokens,
    reference_groups,
    response_tokens,
    sampling_of,
    sequence_tokens,
)
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.rewards.options import num_proxies, parts
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.rollout.mode import ExecutorKind
from rlhf_lab.types.data import ValueModel
from rlhf_lab.types.precision import Precision

BYTES = {"float32": 4, "bfloat16": 2}
SCORING = "reward"


class HandOver(StrEnum):
    """How a version gets to a generator on the trainer's device: through memory that processes
    share, through pinned memory, or on the device."""

    process = "process"
    host = "host"
    device = "device"


@dataclass(frozen=True)
class Choice:
    """micro_tokens: padded tokens of one forward and backward pass. tensor_parallel: devices that
    share one generator's weights."""

    layout: Layout
    engine: str
    dtype: str
    micro_tokens: int
    checkpointing: bool
    tensor_parallel: int

    @property
    def engines(self) -> int:
        """Generators that hold a whole model: servers, or the one in the lead trainer's process."""
        return max(1, self.layout.generators // self.tensor_parallel)

    @property
    def is_apart(self) -> bool:
        """Whether generators have devices that train nothing."""
        return self.layout.generators > 0

    @property
    def devices(self) -> int:
        return self.layout.trainers + self.layout.generators

    @property
    def bytes(self) -> int:
        """Bytes of an element of weights and activations in a pass."""
        return BYTES[self.dtype]

    @property
    def overrides(self) -> list[str]:
        """The settings as `rlhf-lab train` and `rlhf-lab launch` take them."""
        texts = [
            f"engine={self.engine}",
            f"engine.dtype={self.dtype}",
            f"engine.micro_tokens={self.micro_tokens}",
            f"engine.gradient_checkpointing={str(self.checkpointing).lower()}",
        ]
        if self.is_apart:
            texts += [f"generator.dtype={self.dtype}"]
            texts += [f"generator.tensor_parallel_size={self.tensor_parallel}"]
        return texts


@dataclass(frozen=True)
class Workload:
    """The sizes of a round.

    prompt, response: mean tokens of each. observed: mean tokens that the environment of an episode
    writes between the turns of a response. longest: most tokens of all three. rows: generated in a
    round; trained_rows: those of one update; updates: of one round. value_models: trained networks
    beside the policy. reads_reference: whether log-probs under the reference are computed for all
    rows. draws_in_float32: whether generator=hf holds float32 weights.

    limit: most tokens of a response, 0 for as many as the mean. prefetched: samples that all
    generators hold at once, 0 for all. max_num_seqs: see generator.max_num_seqs, 0 for vLLM's own.
    refills: whether a sample that ends makes room for another where trainers generate. sync: see
    generator.sync, as far as generators have devices of their own. hand_over: how a version gets
    from a trainer to a generator on its device. scores_in: see reward.dtype.
    """

    policy: ModelShape
    scorers: tuple[ModelShape, ...]
    value_models: int
    has_adapters: bool
    reads_reference: bool
    shares_prompts: bool
    prompt: float
    response: float
    observed: float
    longest: int
    groups: int
    group_size: int
    trained_rows: int
    trained_groups: int
    updates: int
    num_rounds: int
    staleness: int
    chunk_rows: tuple[int, ...]
    logit_tokens: int
    draws_in_float32: bool = False
    limit: int = 0
    prefetched: int = 0
    max_num_seqs: int = 0
    refills: bool = False
    sync: str = "nccl"
    hand_over: HandOver = HandOver.device
    scores_in: Precision = Precision.auto

    @property
    def rows(self) -> int:
        return self.groups * self.group_size

    @property
    def read_tokens(self) -> float:
        """Tokens of a forward pass over all rows of a round."""
        return self.tokens(self.groups, self.rows)

    @property
    def update_tokens(self) -> float:
        """Tokens that one update reads, forward and backward."""
        return self.tokens(self.trained_groups, self.trained_rows)

    def tokens(self, groups: int, rows: int) -> float:
        prompts = groups if self.shares_prompts else rows
        return prompts * self.prompt + rows * self.behind_prompt

    @property
    def lengths(self) -> str:
        """Mean lengths in words."""
        observed = f", observations of {self.observed:g}" if self.observed else ""
        return f"prompts of {self.prompt:g}, responses of {self.response:g}{observed} tokens"

    @property
    def behind_prompt(self) -> float:
        """Mean tokens of a response with its observations."""
        return self.response + self.observed

    @property
    def sequence(self) -> float:
        """Mean tokens of a prompt with all that stands behind it."""
        return self.prompt + self.behind_prompt

    @property
    def context(self) -> float:
        """Mean tokens before the one that is decoded."""
        return self.prompt + self.behind_prompt / 2

    def with_lengths(
        self, prompt: float | None, response: float | None, observed: float | None
    ) -> Workload:
        """The same with other mean lengths, where they are given."""
        return replace(
            self,
            prompt=self.prompt if prompt is None else prompt,
            response=self.response if response is None else response,
            observed=self.observed if observed is None else observed,
        )


def workload_of(config: Config) -> Workload:
    """The sizes of a config's rounds. Lengths are the longest that it allows, so that memory is
    enough and seconds are too many rather than too few."""
    run, size = config.run, config.run.group_size
    tokenizer = config.task.tokenizer()
    vocabulary = 0 if tokenizer is None else len(tokenizer)
    per_group = config.algo.needs.trained_rows or size
    chunk = config.generator.chunk_groups
    groups = run.groups_generated
    longest = sequence_tokens(config)
    types = {part.dtype for part in parts(config.reward)}
    return Workload(
        policy=shape_of_model(config.model, vocabulary),
        scorers=scorers_of(config, vocabulary),
        value_models=int(config.algo.needs.values is ValueModel.own),
        has_adapters=bool(config.model.lora_rank),
        reads_reference=reference_groups(config) != 0,
        shares_prompts=config.engine.share_prompts,
        prompt=config.task.max_prompt_tokens,
        response=response_tokens(config),
        observed=observation_tokens(config),
        longest=longest,
        groups=groups,
        group_size=size,
        trained_rows=run.groups_per_update * per_group,
        trained_groups=run.groups_per_update,
        updates=run.optimizer_steps_per_round,
        num_rounds=run.num_rounds,
        staleness=config.mode.max_staleness,
        chunk_rows=tuple(min(chunk, groups - start) * size for start in range(0, groups, chunk)),
        logit_tokens=config.engine.logit_tokens,
        draws_in_float32=sampling_of(config).dtype == "float32",
        limit=response_tokens(config),
        prefetched=chunks_in_advance(config) * config.mode.num_generators * chunk * size,
        max_num_seqs=getattr(config.generator, "max_num_seqs", VLLMSampling.max_num_seqs),
        refills=config.generator.has_own_kernels,
        sync=str(getattr(config.generator, "sync", "auto")),
        hand_over=hand_over_of(config),
        scores_in=Precision.float32 if Precision.float32 in types else Precision.auto,
    )


def hand_over_of(config: Config) -> HandOver:
    """How versions get to generators on the trainer's device."""
    if config.mode.executor is ExecutorKind.process:
        return HandOver.process
    return HandOver(config.engine.versions.value)


def scorers_of(config: Config, vocabulary: int) -> tuple[ModelShape, ...]:
    """The reward models that score samples: those of a path, and the proxies that the pipeline
    trains."""
    paths = [path for part in parts(config.reward) for path in part.model_paths(("",) * 99) if path]
    found = [
        shape_of_model(PretrainedModel(name="reward_model", path=path), vocabulary, SCORING)
        for path in dict.fromkeys(paths)
    ]
    proxy = shape_of_model(config.proxy, vocabulary, "proxy")
    return (*(shape.as_scorer for shape in found), *[proxy.as_scorer] * num_proxies(config.reward))
