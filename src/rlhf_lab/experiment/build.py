"""Config -> live parts. The only place that names concrete classes, and that checks their fit."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlhf_lab.evaluation.evaluator import Evaluator
from rlhf_lab.experiment.checks import is_verified, response_tokens
from rlhf_lab.experiment.config import Config
from rlhf_lab.models.adapters import with_adapters
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.models.causal_lm import load_policy, load_tokenizer, policy_shape
from rlhf_lab.models.devices import chosen
from rlhf_lab.models.pretrained import PretrainedModel
from rlhf_lab.models.reward_model import load_reward_model
from rlhf_lab.models.sampling import GenerationSettings
from rlhf_lab.models.value_model import ValueNetwork, value_model_from, value_model_like
from rlhf_lab.rewards.build import RewardContext, model_paths, reading_paths, scorer
from rlhf_lab.rewards.model import reads_last_token
from rlhf_lab.rewards.preference import PreferenceScorer
from rlhf_lab.rewards.shaping import shaped
from rlhf_lab.rollout.background import ProcessExecutor, ThreadExecutor
from rlhf_lab.rollout.budget import StalenessBudget
from rlhf_lab.rollout.executor import Executor, InlineExecutor
from rlhf_lab.rollout.feeds import Segments
from rlhf_lab.rollout.generators.hf import HFGenerator, HFSampling
from rlhf_lab.rollout.generators.pairs import PairsGenerator, PairsSampling
from rlhf_lab.rollout.generators.vllm.make import Lengths, engine_settings, vllm_generator
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling, VLLMServerSampling
from rlhf_lab.rollout.generators.vllm.own_server import Command, lone_server
from rlhf_lab.rollout.mode import AtBound, ExecutorKind, Mode
from rlhf_lab.rollout.pipeline import Pipeline
from rlhf_lab.rollout.process import FailurePolicy
from rlhf_lab.rollout.worker import RolloutWorker
from rlhf_lab.runs.folder import SCHEDULE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.tasks import chat
from rlhf_lab.tasks.lazy_rows import LazyRows
from rlhf_lab.tasks.pairs import pair_examples
from rlhf_lab.tasks.prompts import Encode, PromptStream, Render, Shorten, never_shorter
from rlhf_lab.tasks.protocols import Answering, Shortening, Task
from rlhf_lab.tasks.references import reference_groups
from rlhf_lab.training.engines.distributed import Processes, current, world_size
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.training.engines.options import DeepSpeedOptions, FSDPOptions
from rlhf_lab.training.engines.parameter_backend import ParameterBackend
from rlhf_lab.training.engines.policy_with_values import PolicyWithValues
from rlhf_lab.training.engines.single import SingleBackend
from rlhf_lab.types.data import PolicyOutput, ValueModel
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Adaptive, Generator, Reward
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.run_options import RunOptions
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample, Split


@dataclass(frozen=True)
class Sources:
    """Where a run's models come from: the policy it starts from, and the proxies that the pipeline
    trained for it; and the file of its fixed pairs ('' if it samples)."""

    policy: PretrainedModel
    proxies: tuple[str, ...] = ()
    pairs: str = ""


def prompts(
    config: Config, tokenizer: Any, split: Split, purpose: str, shuffle: bool = True
) -> PromptStream:
    """The endless stream of a split's prompts, in an order keyed by seed and purpose."""
    return stream_of(config.task.examples(split), config, tokenizer, purpose, shuffle)


def rollout_prompts(config: Config, sources: Sources, tokenizer: Any) -> PromptStream:
    """The prompts of the rounds: the task's, or those of fixed pairs, all of them looked at now."""
    if not isinstance(config.generator, PairsSampling):
        examples = config.task.examples(Split.train)
        stream = stream_of(examples, config, tokenizer, "rollout", shuffle=True)
        if not isinstance(examples, LazyRows):
            # Rows of a user's own, which may be too long; generated ones cost more to look at.
            stream.require_fit(config.run.num_rounds * config.run.groups_generated)
        return stream
    fixed = pair_examples(Path(sources.pairs))
    stream = stream_of(fixed, config, tokenizer, "rollout", shuffle=True)
    pairs = PairsGenerator(tokenizer, response_tokens(config))
    for place in range(len(stream)):
        pairs.pair(stream[place].example)
    return stream


def stream_of(
    examples: Sequence[Example], config: Config, tokenizer: Any, purpose: str, shuffle: bool
) -> PromptStream:
    """An endless stream of prompts made of these examples."""
    if len(examples):
        chat.check_end(tokenizer, getattr(config.task, "chat_template", ""), examples[0])
    kept = examples
    if getattr(config.task, "drop_long", False):
        kept = fitting(examples, config, tokenizer)
    return PromptStream(
        kept,
        prompt_encoder(tokenizer),
        seed=stable_hash(config.seed, purpose),
        max_prompt_tokens=config.task.max_prompt_tokens,
        shuffle=shuffle,
        shorten=shortening(config.task),
        render=rendering(config.task, tokenizer),
        num_dropped=len(examples) - len(kept),
    )


def fitting(examples: Sequence[Example], config: Config, tokenizer: Any) -> list[Example]:
    """The examples whose prompts are not too long."""
    encode, render = prompt_encoder(tokenizer), rendering(config.task, tokenizer)
    most = config.task.max_prompt_tokens
    return [example for example in examples if len(encode(render(example))) <= most]


def prompt_encoder(tokenizer: Any) -> Encode:
    """How a policy reads a text: nothing is added to it."""
    return lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])


def shortening(task: Task) -> Shorten:
    """What the task does about prompts that are too long: nothing, for most."""
    return task.shorter if isinstance(task, Shortening) else never_shorter


def rendering(task: Task, tokenizer: Any) -> Render:
    """What a policy reads of a prompt: its text, or a chat in the form of a chat template."""
    # Of tasks that may be chats; examples of others have no messages.
    return functools.partial(chat.text, tokenizer, getattr(task, "chat_template", ""))


def eval_prompts(config: Config, tokenizer: Any) -> list[Prompt]:
    """The prompts that every evaluation of the task uses, whatever the seed."""
    stream = prompts(config, tokenizer, config.eval.split, "evaluation", shuffle=False)
    available = len(stream)
    if config.eval.prompts > available:
        raise UserError(
            f"eval.prompts={config.eval.prompts}, but split {config.eval.split.value} of "
            f"task={config.task.name} has {available} rows: lower it"
        )
    return [stream[index] for index in range(config.eval.prompts)]


def sampling(config: Config) -> HFSampling:
    """How samples are drawn; a run on fixed pairs draws some too, for labels and evaluation."""
    part = config.generator
    names = [f.name for f in fields(HFSampling) if f.name != "name"]
    return HFSampling(**{name: getattr(part, name) for name in names})


def generator(
    config: Config, model: Any, tokenizer: Any, purpose: str, temperature: float = 0.0
) -> HFGenerator:
    """A generator over a model of its own; `purpose` keys its randomness."""
    drawn = sampling(config)
    if temperature:
        drawn = replace(drawn, temperature=temperature)
    return HFGenerator(
        model,
        tokenizer,
        drawn,
        response_tokens(config),
        functools.partial(uniforms, stable_hash(config.seed, purpose)),
    )


def reward(
    part: Any, config: Config, tokenizer: Any, proxies: Sequence[str], threads: int
) -> Reward:
    """The live reward of a config node; proxies stand in for models without a path."""
    cache = Path(config.output.cache)
    limit = response_tokens(config)
    device = chosen(config.generator.device, "generator.device")
    given = RewardContext(config.task, tokenizer, proxies, threads, limit, cache, device)
    return scorer(part, given)


def make_worker(config: Config, sources: Sources, policy: Any | None = None) -> RolloutWorker:
    """A rollout worker with models of its own; called in the process that will use it.

    policy: the model of version 0 where this process has it already; the worker copies it.
    """
    tokenizer = load_tokenizer(sources.policy, None)
    if isinstance(config.generator, PairsSampling):
        pairs = PairsGenerator(tokenizer, response_tokens(config))
        return RolloutWorker(pairs, PreferenceScorer(), is_model=False)
    live = reward(config.reward, config, tokenizer, sources.proxies, config.generator.threads)
    drawn: Generator
    if isinstance(config.generator, VLLMSampling):
        drawn = vllm_generator(
            config.generator,
            tokenizer,
            lambda: load_policy(sources.policy, None, config.seed)[0],
            lengths(config),
            stable_hash(config.seed, "rollout"),
        )
    else:
        if policy is None:
            model, _ = load_policy(sources.policy, None, config.seed)
        else:
            model = copy.deepcopy(policy)
        drawn = generator(config, model, tokenizer, "rollout")
    return RolloutWorker(
        drawn,
        shaped(live, config.shaping, response_tokens(config)),
        is_model=bool(reading_paths(config.reward, sources.proxies)),
    )


def server(config: Config) -> Command:
    """The command of a vLLM server for runs like this one. Raises UserError for what it lacks."""
    part = config.generator
    if not isinstance(part, VLLMServerSampling) or part.urls or not part.port:
        raise UserError(
            f"generator={part.name}: a server listens at one port of this machine; pass "
            "generator=vllm_server generator.port=8100 and no generator.urls"
        )
    shape = policy_shape(config.model, config.task.tokenizer())
    return lone_server(part, shape, engine_settings(part, shape, lengths(config)))


def lengths(config: Config) -> Lengths:
    """The longest texts that vLLM must take."""
    return Lengths(config.task.max_prompt_tokens, response_tokens(config))


def written(config: Config) -> GenerationSettings:
    """How a run's policy writes."""
    return GenerationSettings(config.generator.temperature, response_tokens(config))


def executor(
    config: Config, sources: Sources, policy: Any, report: Callable[[str], None]
) -> Executor:
    """The executor that the mode names. policy: the model of version 0, which is read until the
    executor has started."""
    mode: Mode = config.mode
    if mode.executor is ExecutorKind.process:
        care = FailurePolicy(
            mode.on_generator_failure, mode.hang_seconds, mode.max_restarts, report
        )
        # Versions in use, one that is being replaced, and one to spare.
        slots = mode.max_staleness + 3
        state = dict(policy.named_parameters())
        alone = functools.partial(make_worker, config, sources)
        return ProcessExecutor(alone, mode.num_generators, mode.prefetch, state, slots, care)
    work = functools.partial(make_worker, config, sources, policy)
    if mode.executor is ExecutorKind.thread:
        return ThreadExecutor(work, mode.num_generators, mode.prefetch)
    return InlineExecutor(work)


def chunks_per_round(config: Config) -> int:
    """Chunks that make up a round; the last one may be smaller."""
    return math.ceil(config.run.groups_generated / config.generator.chunk_groups)


def pipeline(
    config: Config,
    sources: Sources,
    policy: Any,
    tokenizer: Any,
    report: Callable[[str], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Pipeline:
    """The run's stream of chunks behind its executor and staleness budget. policy: the model of
    version 0, which is read until the pipeline is open."""
    recipe: RunOptions = config.run
    mode: Mode = config.mode
    stream = rollout_prompts(config, sources, tokenizer)
    if stream.num_dropped:
        report(
            f"{stream.num_dropped} prompts of more than task.max_prompt_tokens="
            f"{config.task.max_prompt_tokens} are left out, {len(stream)} are kept"
        )
    per_round = chunks_per_round(config)

    def chunk(number: int) -> Chunk:
        round_, index = divmod(number, per_round)
        start = round_ * recipe.groups_generated + index * config.generator.chunk_groups
        end = min(start + config.generator.chunk_groups, (round_ + 1) * recipe.groups_generated)
        chosen = tuple(stream[place] for place in range(start, end))
        return Chunk(round_, index, chosen, recipe.group_size, config.algo.needs.greedy)

    recorded = schedule_of(Path(mode.schedule), mode, recipe) if mode.is_replay else None
    return Pipeline(
        executor(config, sources, policy, report),
        budget(config, per_round),
        chunk,
        per_round,
        mode,
        recorded,
        should_stop,
        report,
    )


def budget(config: Config, per_round: int) -> StalenessBudget:
    """What the mode admits: a replay one round at a time, a mode that drops a little too much."""
    mode: Mode = config.mode
    admitted = 0 if mode.is_replay else mode.max_staleness
    if mode.at_bound is AtBound.drop and not mode.is_replay:
        admitted += mode.ahead
    lag = None
    if mode.lag_shares:
        shares = np.cumsum(mode.lag_shares)

        def lag(number: int) -> int:
            draw = uniforms(stable_hash(config.seed, "lag"), number, 0, 1)[0] * shares[-1]
            return min(int(np.searchsorted(shares, draw, side="right")), mode.max_staleness)

    return StalenessBudget(admitted, per_round, config.run.num_rounds, lag)


def schedule_of(folder: Path, mode: Mode, recipe: RunOptions) -> dict[int, Segments]:
    """The recorded schedule of a run, by chunk. Refused if it is not of a run like this one."""
    rows = read_rows(folder / SCHEDULE)
    if not rows:
        raise UserError(
            f"mode.schedule={folder} has no {SCHEDULE}: name the folder of a run that trained"
        )
    if rows[-1]["round"] + 1 < recipe.num_rounds:
        raise UserError(
            f"mode.schedule={folder} ends at round {rows[-1]['round']}, this run has "
            f"{recipe.num_rounds}: resume that run first, or lower run.updates"
        )
    if rows[-1].get("segment_tokens"):
        raise UserError(
            f"mode.schedule={folder} is of partial rollouts (mode.segment_tokens="
            f"{rows[-1]['segment_tokens']}), which timing does not change: train again with that "
            "run's own options, which repeats it bit for bit"
        )
    if absent := set(range(len(rows))) - {row["chunk"] for row in rows}:
        raise UserError(
            f"mode.schedule={folder} has no row of chunk {min(absent)}: restore its {SCHEDULE}, or "
            "name another run"
        )
    lag = max(
        (row["round"] - row["segments"][0][1] for row in rows if not row["dropped"]), default=0
    )
    if lag > mode.max_staleness:
        raise UserError(
            f"mode.max_staleness={mode.max_staleness}, but mode.schedule={folder} has samples "
            f"{lag} rounds old: pass mode.max_staleness={lag}"
        )
    return {row["chunk"]: tuple((s, v) for s, v in row["segments"]) for row in rows}


def engine(config: Config, model: Any, values: ValueNetwork | None = None) -> TrainingEngine:
    """The engine of this process; model and values are its own from now on."""
    processes = current()
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    if config.model.lora_rank:
        model = with_adapters(model, config.model.lora, config.seed)
    networks = PolicyWithValues(
        model, values, config.generator.temperature, config.engine.share_prompts
    )
    if config.engine.gradient_checkpointing:
        networks.save_activations()
    return TrainingEngine(
        backend(config, networks, processes),
        dtypes,
        config.engine,
        processes,
        model.config.hidden_size,
    )


def backend(config: Config, networks: PolicyWithValues, processes: Processes) -> ParameterBackend:
    """Whoever holds the parameters; DeepSpeed is imported only where it is asked for."""
    options = config.engine
    place = training_device(options.device, processes)
    if isinstance(options, DeepSpeedOptions):
        from rlhf_lab.training.engines.deepspeed import DeepSpeedBackend

        return DeepSpeedBackend(networks, config.optim, options, place, processes)
    if isinstance(options, FSDPOptions):
        from rlhf_lab.training.engines.fsdp import FSDPBackend

        return FSDPBackend(networks, config.optim, options, place, processes)
    return SingleBackend(networks, config.optim, place)


def training_device(asked: str, processes: Processes) -> torch.device:
    """Where this process trains: of several devices of a host, the one of its number there."""
    place = chosen(asked, "engine.device")
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", processes.local_rank)
    return place


def value_model(
    config: Config, sources: Sources, policy: Any, tokenizer: Any
) -> ValueNetwork | None:
    """What the algorithm needs: from the proxy reward model (N+ detail 22) where the run has one of
    the policy's vocabulary, else from the policy under a head that says zero."""
    kind = config.algo.needs.values
    if kind is ValueModel.none:
        return None
    paths = model_paths(config.reward, sources.proxies)
    if kind is ValueModel.own and paths:
        model, own_tokenizer, offset = load_reward_model(paths[0])
        is_alike = reads_last_token(model) and model.config.num_labels == 1
        if is_alike and own_tokenizer.get_vocab() == tokenizer.get_vocab():
            return value_model_from(model, offset)
    return value_model_like(policy, is_shared=kind is ValueModel.shared)


def compares(config: Config) -> bool:
    """Whether the algorithm trains on a fixed number of a group's rows, whatever their number."""

    def kept(size: int) -> int:
        groups = [made_up_group(size)]
        return int(config.algo.credit(rewards_of(groups), collate(groups, 0)).keep_B.sum())

    return kept(4) == kept(8)


def reads_reference(config: Config) -> bool:
    """Whether credit or loss depends on what the reference says. Asked of the algorithm itself, on
    made-up rows; one that adapts itself may look at the metrics of it."""

    def learned(step: float) -> list[float]:
        groups = [made_up_group(4)]
        batch = collate(groups, 0)
        # Unlike in all rows: comparisons do not see what is common to them.
        reference_BT = batch.mask_BT * -(step * torch.arange(1, 5).square()).unsqueeze(1)
        batch = replace(batch, reference_logp_BT=reference_BT)
        credit = config.algo.credit(rewards_of(groups), batch)
        (part,) = minibatches(batch, credit, config.algo.reduction, 1, torch.zeros(1).long())
        logp_BT = -0.9 * part.mask_BT
        policy = PolicyOutput(logp_BT, torch.zeros_like(logp_BT), torch.zeros_like(logp_BT))
        loss = config.algo.loss(policy, part).loss
        return [float(loss), *credit.value_BT.flatten().tolist(), *credit.keep_B.tolist()]

    return isinstance(config.algo, Adaptive) or learned(0.1) != learned(0.2)


def made_up_group(size: int) -> Group:
    """Samples of one token each, with a reward of their own."""
    samples = tuple(Sample((0,), (-1.0,), 0, Finish.eos, "") for _ in range(size))
    rewards = tuple(float(number) for number in range(size))
    return Group(Prompt(0, (0,), Example("", "", "")), samples, rewards)


def settings(config: Config) -> dict[str, Any]:
    """What decides a run's time, for `rlhf-lab plan`."""
    return {
        **{f.name: getattr(config.run, f.name) for f in fields(config.run)},
        "max_staleness": config.mode.max_staleness,
        "segment_tokens": config.mode.segment_tokens,
        "num_generators": config.mode.num_background,
        "chunk_groups": config.generator.chunk_groups,
        "compares": compares(config),
    }


def num_devices(config: Config) -> int:
    """Cores that the run holds: those of the trainer's processes, and of generators beside it."""
    training = config.engine.threads * world_size()
    background = config.mode.num_background * config.generator.threads
    return training + background if background else max(training, config.generator.threads)


def evaluator(config: Config, sources: Sources) -> Evaluator:
    """The judge of saved weights, on prompts and randomness of its own."""
    policy, tokenizer = load_policy(sources.policy, None, config.seed)
    reference, sampling_model = copy.deepcopy(policy), copy.deepcopy(policy)
    device = chosen(config.engine.device, "engine.device")
    asked = eval_prompts(config, tokenizer)
    temperature = config.eval.temperature
    sampled = generator(config, sampling_model, tokenizer, "evaluation")
    judged = sampled
    if temperature and temperature != config.generator.temperature:
        judged = generator(config, sampling_model, tokenizer, "evaluation", temperature)
    threads = config.eval.threads
    return Evaluator(
        judged=judged,
        sampled=sampled,
        policy=policy.to(device),
        reference=reference.to(device),
        gold=reward(config.judge, config, tokenizer, (), threads),
        proxy=reward(config.reward, config, tokenizer, sources.proxies, threads),
        prompts=asked,
        references=reference_groups(asked, tokenizer, response_tokens(config)),
        pad_id=pad_id(tokenizer),
        temperature=config.generator.temperature,
        is_verified=is_verified(config),
        answering=config.task if isinstance(config.task, Answering) else None,
        options=config.eval,
    )


def pad_id(tokenizer: Any) -> int:
    """The padding token, or the end token where there is none (padding is masked everywhere)."""
    pad = tokenizer.pad_token_id
    return int(tokenizer.eos_token_id if pad is None else pad)
