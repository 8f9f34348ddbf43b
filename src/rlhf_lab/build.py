"""Config -> live parts. The only place that names concrete classes, and that checks their fit."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlhf_lab.checks import response_tokens
from rlhf_lab.config import Config
from rlhf_lab.engines.single import SingleEngine
from rlhf_lab.evals import Evaluator
from rlhf_lab.generators.hf import HFGenerator
from rlhf_lab.models.causal_lm import PretrainedModel, load_policy
from rlhf_lab.models.reward_model import load_reward_model
from rlhf_lab.randomness import stable_hash, uniforms
from rlhf_lab.recipe import Recipe
from rlhf_lab.rewards.model import ModelReward, ModelScorer
from rlhf_lab.rewards.rule import RuleReward, RuleScorer
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.executor import (
    Executor,
    InlineExecutor,
    ProcessExecutor,
    ThreadExecutor,
)
from rlhf_lab.rollout.mode import ExecutorKind, Mode
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.stages.sft import reference_groups
from rlhf_lab.tasks.prompts import PromptStream
from rlhf_lab.types import Chunk, Group, Prompt, Reward, Sample, Split, UserError


@dataclass(frozen=True)
class Sources:
    """Where a run's models come from: the policy it starts from, and the proxy ('' if none)."""

    policy: PretrainedModel
    proxy: str = ""


def prompts(
    config: Config, tokenizer: Any, split: Split, purpose: str, shuffle: bool = True
) -> PromptStream:
    """The endless stream of a split's prompts, in an order keyed by seed and purpose."""
    return PromptStream(
        config.task.examples(split),
        lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"]),
        seed=stable_hash(config.seed, purpose),
        max_prompt_tokens=config.task.max_prompt_tokens,
        shuffle=shuffle,
    )


def eval_prompts(config: Config, tokenizer: Any) -> list[Prompt]:
    """The prompts that every evaluation of the task uses, whatever the seed."""
    available = len(config.task.examples(config.eval.split))
    if config.eval.prompts > available:
        raise UserError(
            f"eval.prompts={config.eval.prompts}, but split {config.eval.split.value} of "
            f"task={config.task.name} has {available} rows: lower it"
        )
    stream = prompts(config, tokenizer, config.eval.split, "evaluation", shuffle=False)
    return [stream[index] for index in range(config.eval.prompts)]


def generator(
    config: Config, model: Any, tokenizer: Any, purpose: str, temperature: float = 0.0
) -> HFGenerator:
    """A generator over a model of its own; `purpose` keys its randomness."""
    sampling = config.generator
    if temperature:
        sampling = replace(sampling, temperature=temperature)
    return HFGenerator(
        model,
        tokenizer,
        sampling,
        response_tokens(config),
        functools.partial(uniforms, stable_hash(config.seed, purpose)),
    )


def reward(part: Any, config: Config, tokenizer: Any, proxy: str, threads: int) -> Reward:
    """The live reward of a config node; `proxy` stands in for an empty path."""
    if isinstance(part, RuleReward):
        return RuleScorer(config.task)
    model, own_tokenizer, offset = load_reward_model(part.path or proxy)
    encode = encoder(tokenizer, own_tokenizer)
    return ModelScorer(model, offset, part, encode, threads)


def encoder(policy_tokenizer: Any, reward_tokenizer: Any) -> Any:
    """How a reward model reads a sample: its tokens if the vocabulary is shared, else its text."""
    if policy_tokenizer.get_vocab() == reward_tokenizer.get_vocab():
        return lambda group, sample: [*group.prompt.tokens, *sample.tokens]

    def encode(group: Group, sample: Sample) -> Sequence[int]:
        text = group.prompt.example.prompt + sample.text
        ids = reward_tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*ids, reward_tokenizer.eos_token_id]

    return encode


def make_worker(config: Config, sources: Sources) -> RolloutWorker:
    """A rollout worker with models of its own; called in the process that will use it."""
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    scorer = reward(config.reward, config, tokenizer, sources.proxy, config.generator.threads)
    return RolloutWorker(
        generator(config, model, tokenizer, "rollout"),
        scorer,
        is_model=isinstance(config.reward, ModelReward),
    )


def executor(config: Config, sources: Sources) -> Executor:
    """The executor that the mode names."""
    work = functools.partial(make_worker, config, sources)
    mode: Mode = config.mode
    if mode.executor is ExecutorKind.process:
        return ProcessExecutor(work, mode.num_generators)
    if mode.executor is ExecutorKind.thread:
        return ThreadExecutor(work, mode.num_generators)
    return InlineExecutor(work)


def chunks_per_round(config: Config) -> int:
    """Chunks that make up a round; the last one may be smaller."""
    return math.ceil(config.run.groups_per_round / config.generator.chunk_groups)


def pipeline(config: Config, sources: Sources, tokenizer: Any) -> Pipeline:
    """The run's stream of chunks behind its executor and staleness budget."""
    recipe: Recipe = config.run
    stream = prompts(config, tokenizer, Split.train, "rollout")
    per_round = chunks_per_round(config)

    def chunk(number: int) -> Chunk:
        round_, index = divmod(number, per_round)
        start = round_ * recipe.groups_per_round + index * config.generator.chunk_groups
        end = min(start + config.generator.chunk_groups, (round_ + 1) * recipe.groups_per_round)
        chosen = tuple(stream[place] for place in range(start, end))
        return Chunk(round_, index, chosen, recipe.group_size)

    budget = StalenessBudget(config.mode.max_staleness, per_round, recipe.num_rounds)
    return Pipeline(executor(config, sources), budget, chunk, per_round)


def engine(config: Config, model: Any) -> SingleEngine:
    return SingleEngine(model, config.optim, config.engine, config.generator.temperature)


def num_devices(config: Config) -> int:
    """Cores that the run holds: the trainer's, and those of generators beside it."""
    background = config.mode.num_background * config.generator.threads
    return (
        max(config.engine.threads, config.generator.threads)
        if not background
        else (config.engine.threads + background)
    )


def evaluator(config: Config, sources: Sources) -> Evaluator:
    """The judge of saved weights, on prompts and randomness of its own."""
    policy, tokenizer = load_policy(sources.policy, None, config.seed)
    reference, _ = load_policy(sources.policy, None, config.seed)
    sampling_model, _ = load_policy(sources.policy, None, config.seed)
    chosen = eval_prompts(config, tokenizer)
    temperature = config.eval.temperature
    sampled = generator(config, sampling_model, tokenizer, "evaluation")
    judged = sampled
    if temperature and temperature != config.generator.temperature:
        judged = generator(config, sampling_model, tokenizer, "evaluation", temperature)
    threads = config.eval.threads
    return Evaluator(
        judged=judged,
        sampled=sampled,
        policy=policy,
        reference=reference,
        gold=reward(config.judge, config, tokenizer, "", threads),
        proxy=reward(config.reward, config, tokenizer, sources.proxy, threads),
        prompts=chosen,
        references=reference_groups(chosen, tokenizer, response_tokens(config)),
        pad_id=pad_id(tokenizer),
        temperature=config.generator.temperature,
        chunk_groups=256,
        options=config.eval,
    )


def pad_id(tokenizer: Any) -> int:
    """The padding token, or the end token where there is none (padding is masked everywhere)."""
    pad = tokenizer.pad_token_id
    return int(tokenizer.eos_token_id if pad is None else pad)
