"""The rollout side of a run: workers that sample and score, their executor, and the pipeline."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlhf_lab.experiment.build.evaluator import ROLLOUT, build_reward, episodes_of
from rlhf_lab.experiment.build.policy import Sources
from rlhf_lab.experiment.build.prompts import build_rollout_prompts, build_selection
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import (
    chunks_in_advance,
    chunks_per_round,
    generator_devices,
    observation_tokens,
    pairs_file,
    response_tokens,
    sample_tokens,
    sampling_of,
)
from rlhf_lab.models.causal_lm import load_policy, load_tokenizer, policy_shape
from rlhf_lab.models.devices import chosen, turn_on
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.rewards.data_rewards import PreferenceScorer
from rlhf_lab.rewards.options import scoring_paths
from rlhf_lab.rewards.shaping import shaped
from rlhf_lab.rollout.background import ProcessExecutor, ThreadExecutor
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.chunk_queue import ChunkQueue
from rlhf_lab.rollout.chunk_runner import ChunkRunner
from rlhf_lab.rollout.executor import Executor, InlineExecutor
from rlhf_lab.rollout.generators.options import Ability, Command, GeneratorContext, Lengths
from rlhf_lab.rollout.generators.pairs import PairsGenerator
from rlhf_lab.rollout.group_queue import GroupQueue
from rlhf_lab.rollout.mode import ExecutorKind, Mode
from rlhf_lab.rollout.open_groups import RecyclingRule
from rlhf_lab.rollout.pipeline import Pipeline, RoundQueue
from rlhf_lab.rollout.process import FailurePolicy
from rlhf_lab.rollout.recorded_schedule import read_schedule
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.tasks.prompts import PromptSelection
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import OFFLINE


def build_worker(config: Config, sources: Sources, policy: Any | None = None) -> RolloutWorker:
    """A rollout worker with models of its own; called in the process that uses it.

    policy: the model of version 0 where this process has it already; the worker copies it.
    """
    tokenizer = load_tokenizer(sources.policy, None)
    options = sampling_of(config)
    context = generator_context(config, sources.policy, tokenizer, policy)
    generator = options.build(context)
    if not options.draws_samples:
        return RolloutWorker(generator, PreferenceScorer(options.pair_scores), is_model=False)
    if Ability.turns in options.abilities:
        turns = options.build_turns(generator)
        generator = episodes_of(config, turns, tokenizer, ROLLOUT) or generator
    reward = build_reward("reward", config, tokenizer, sources.proxies, options.threads)
    offline = None
    if config.run.offline_share:
        key = pairs_file(config)[1]
        length = context.lengths.response
        offline = PairsGenerator(tokenizer, length, key, OFFLINE, context.form)
    return RolloutWorker(
        generator,
        shaped(reward, config.shaping, context.lengths.response),
        is_model=bool(scoring_paths(config.reward, sources.proxies)),
        offline=offline,
    )


def generator_context(
    config: Config,
    model: ScratchModel | PretrainedModel,
    tokenizer: Any,
    policy: Any | None = None,
) -> GeneratorContext:
    """What the config's generator is built from. policy: the model where it is loaded already."""

    def own() -> Any:
        return load_policy(model, None, config.seed)[0] if policy is None else copy.deepcopy(policy)

    return GeneratorContext(
        tokenizer,
        own,
        functools.partial(policy_shape, model, tokenizer),
        Lengths(config.task.max_prompt_tokens, response_tokens(config), observation_tokens(config)),
        stable_hash(config.seed, ROLLOUT),
        config.task.chat_form,
        Path(config.output.cache),
    )


def build_server(config: Config) -> Command:
    """The command of a server for runs like this one. Raises UserError where the generator has
    none, or options of it are missing."""
    tokenizer = config.task.tokenizer()
    return config.generator.server_command(generator_context(config, config.model, tokenizer))


def build_executor(
    config: Config, sources: Sources, policy: Any, report: Callable[[str], None]
) -> Executor:
    """The executor that the mode names. policy: the model of version 0, which is read until the
    executor has started."""
    mode: Mode = config.mode
    if mode.executor is ExecutorKind.process:
        on_failure = FailurePolicy(
            mode.on_generator_failure, mode.hang_seconds, mode.max_restarts, report
        )
        # Versions in use, one that is being replaced, and one to spare.
        slots = mode.max_staleness + 3
        state = dict(policy.named_parameters())
        alone = [functools.partial(build_alone, one, sources) for one in config_of_each(config)]
        return ProcessExecutor(alone, chunks_in_advance(config), state, slots, on_failure)
    if mode.executor is ExecutorKind.thread:
        each = config_of_each(config)
        builds = [functools.partial(build_worker, one, sources, policy) for one in each]
        devices = [chosen(one.generator.device, "generator.device") for one in each]
        return ThreadExecutor(builds, chunks_in_advance(config), devices)
    worker = functools.partial(build_worker, config, sources, policy)
    if mode.is_virtual:
        # Only this mode needs simpy. It also decides in which order rounds take chunks.
        from rlhf_lab.rollout.cluster.executor import Setting, VirtualExecutor

        setting = Setting(
            chunks_per_round(config),
            sample_tokens(config),
            config.run.passes,
            mode.deadline,
            stable_hash(config.seed, "cluster"),
        )
        return VirtualExecutor(worker, config.cluster, setting)
    return InlineExecutor(worker, mode.hang_seconds, report)


def config_of_each(config: Config) -> list[Config]:
    """The config of each generator beside the trainer, with the device that it takes."""
    return [
        replace(config, generator=replace(config.generator, device=device))
        for device in generator_devices(config)
    ]


def build_alone(config: Config, sources: Sources) -> RolloutWorker:
    """A rollout worker in a process of its own, which leaves the other GPUs alone."""
    if config.deterministic:
        turn_on()
    device = chosen(config.generator.device, "generator.device")
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    return build_worker(config, sources)


def build_pipeline(
    config: Config,
    sources: Sources,
    policy: Any,
    tokenizer: Any,
    report: Callable[[str], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Pipeline:
    """The run's stream of chunks behind its executor and staleness budget. policy: the model of
    version 0, which is read until the pipeline is open."""
    mode: Mode = config.mode
    stream = build_rollout_prompts(config, sources.pairs, tokenizer, report)
    if stream.num_dropped:
        report(
            f"{stream.num_dropped} prompts of more than task.max_prompt_tokens="
            f"{config.task.max_prompt_tokens} are left out, {len(stream)} are kept"
        )
    selection, budget = build_selection(config, stream), build_budget(config)
    runner = ChunkRunner(
        build_executor(config, sources, policy, report),
        functools.partial(chunk_of, config, selection),
        mode,
        2 * chunks_per_round(config) if selection.is_known_ahead else 0,
        should_stop,
        report,
        budget.inherited_lag,
    )
    return Pipeline(runner, build_queue(config, runner, budget), selection)


def build_queue(config: Config, runner: ChunkRunner, budget: StalenessBudget) -> RoundQueue:
    """What decides which samples each round trains on."""
    mode, run = config.mode, config.run
    if mode.recycles_groups:
        rule = RecyclingRule.of(
            run.groups_generated, run.num_rounds, mode.over_provision, mode.max_staleness
        )
        return GroupQueue(runner, rule, config.generator.chunk_groups, mode)
    recorded = None
    if mode.is_replay:
        recorded = read_schedule(Path(mode.schedule), mode, config.run, config.generator)
    chunk_order: Any = runner.executor if mode.is_virtual else None
    return ChunkQueue(runner, budget, chunks_per_round(config), mode, recorded, chunk_order)


def chunk_of(config: Config, selection: PromptSelection, number: int) -> Chunk:
    """The chunk of this number, counted over all rounds."""
    run, size = config.run, config.generator.chunk_groups
    round_, index = divmod(number, chunks_per_round(config))
    places = range(index * size, min((index + 1) * size, run.groups_generated))
    prompts = tuple(selection.prompt(round_, place) for place in places)
    return Chunk(
        round_,
        index,
        prompts,
        run.group_size,
        greedy=config.algo.needs.greedy,
        stops_by_tokens=config.mode.segment_tokens > 0,
    )


def build_budget(config: Config) -> StalenessBudget:
    """How far rollouts may run ahead, and the lag of each chunk where lags are drawn."""
    mode: Mode = config.mode
    lag = None
    if mode.lag_shares:
        shares = np.cumsum(mode.lag_shares)

        def lag(number: int) -> int:
            draw = uniforms(stable_hash(config.seed, "lag"), number, 0, 1)[0] * shares[-1]
            return min(int(np.searchsorted(shares, draw, side="right")), mode.max_staleness)

    return StalenessBudget(mode.rounds_ahead, chunks_per_round(config), config.run.num_rounds, lag)
