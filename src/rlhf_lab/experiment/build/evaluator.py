"""The evaluator, its judge and generator, and the scores of references."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.evaluation.evaluator import Evaluator
from rlhf_lab.experiment.build.policy import PolicyLoader, Sources
from rlhf_lab.experiment.build.prompts import build_eval_prompts
from rlhf_lab.experiment.config.code import code_digest
from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.rules.derived import (
    has_judge,
    has_references,
    is_verified,
    judged_tokens,
    reads_reference_tokens,
    response_tokens,
    sampling_of,
)
from rlhf_lab.experiment.rules.models import why_no_win_rate
from rlhf_lab.models.devices import chosen
from rlhf_lab.rewards.model_options import EnsembleReward, ModelReward
from rlhf_lab.rewards.options import RewardContext, build_scorer
from rlhf_lab.rollout.generators.episodes import EpisodeGenerator, Turns
from rlhf_lab.rollout.generators.hf import HFGenerator, HFTurns
from rlhf_lab.rollout.generators.options import GeneratorOptions, HFSampling
from rlhf_lab.runs.disk import ENTRY, file_digest
from rlhf_lab.runs.reading import read_json
from rlhf_lab.tasks.references import reference_form, reference_groups
from rlhf_lab.training.stages.cache import cached
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Group
from rlhf_lab.types.text_frame import TextFrame

REFERENCE_SCORES = "reference_scores"
SCORES = "scores.json"
# What the samples that are trained on are keyed by.
ROLLOUT = "rollout"


@dataclass(frozen=True)
class KnownReferences(Reward):
    """A reward that reads its scores of `references` from a cache, once they are in it.

    root: of the cache. key: all that decides these scores.
    """

    reward: Reward
    references: Sequence[Group]
    root: Path
    key: Mapping[str, Any]

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        """See Reward."""
        if groups is not self.references:
            return self.reward.score(groups)

        def make(folder: Path) -> None:
            text = json.dumps(self.reward.score(self.references))
            (folder / SCORES).write_text(text, encoding="utf-8")

        folder, _ = cached(self.root, REFERENCE_SCORES, self.key, make)
        return [tuple(row) for row in read_json(folder / SCORES, list[list[float]])]


def with_known_references(
    config: Config,
    proxies: Sequence[str],
    tokenizer: Any,
    reward: Reward,
    references: Sequence[Group],
) -> Reward:
    """The run's reward, with known references where files of the cache decide its scores: of
    learned rewards on a CPU that read no models but the proxies that the pipeline trained.

    tokenizer: the policy's, by which the reward reads samples.
    """
    options = config.reward
    # Others may run code that no key knows.
    if not references or not proxies or type(options) not in (ModelReward, EnsembleReward):
        return reward
    root = Path(proxies[0]).parents[1]
    is_known = set(options.model_paths(proxies)) == set(proxies)
    is_on_cpu = chosen(config.generator.device, "generator.device").type == "cpu"
    if not is_known or not is_on_cpu or not os.access(root, os.W_OK):
        return reward
    key = {
        "code": code_digest(),
        "kernels": config.kernels.value,
        "threads": config.eval.threads,
        "reward": plain(options),
        "proxies": [file_digest(Path(proxy, ENTRY)) for proxy in proxies],
        "vocabulary": digest(sorted(tokenizer.get_vocab().items())),
        "references": digest([texts_of(group) for group in references]),
    }
    return KnownReferences(reward, references, root, key)


def texts_of(group: Group) -> list[Any]:
    """All that a reward model can read of a prompt and its answers."""
    example, tokens = group.prompt.example, group.prompt.tokens
    answers = [[sample.text, sample.tokens, sample.finish.value] for sample in group.samples]
    return [example.prompt, example.messages, tokens, answers]


def digest(values: Any) -> str:
    """SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def transformers_sampling(config: Config) -> HFSampling:
    """The options that every generator shares with generator=hf, by which labels and evaluation
    are sampled, with weights as they are trained."""
    names = [f.name for f in fields(GeneratorOptions) if f.name not in ("name", "round_weights")]
    return HFSampling(**{name: getattr(sampling_of(config), name) for name in names})


def build_generator(
    config: Config,
    model: Any,
    tokenizer: Any,
    purpose: str,
    temperature: float = 0.0,
    max_tokens: int = 0,
) -> HFGenerator:
    """A generator that owns the model; `purpose` keys its randomness. temperature, max_tokens: 0
    takes those of training."""
    sampling = transformers_sampling(config)
    if temperature:
        sampling = replace(sampling, temperature=temperature)
    return HFGenerator(
        model,
        tokenizer,
        sampling,
        max_tokens or response_tokens(config),
        functools.partial(uniforms, stable_hash(config.seed, purpose)),
    )


def build_player(
    config: Config, model: Any, tokenizer: Any, purpose: str, *how: Any
) -> HFGenerator | EpisodeGenerator:
    """The generator of `build_generator`, as the writer of episodes where the task has an
    environment."""
    generator = build_generator(config, model, tokenizer, purpose, *how)
    return episodes_of(config, HFTurns(generator), tokenizer, purpose) or generator


def episodes_of(
    config: Config, writer: Turns, tokenizer: Any, purpose: str
) -> EpisodeGenerator | None:
    """Plays episodes whose actions this writes; None where the task has no environment.
    Observations take virtual time in those alone that are trained on."""
    if not config.task.is_episodic:
        return None
    seed = functools.partial(stable_hash, config.seed, "environment", purpose)
    episodes = config.episodes if purpose == ROLLOUT else config.episodes.without_tools
    return EpisodeGenerator(writer, tokenizer, config.task, seed, episodes)


def build_reward(
    key: str,
    config: Config,
    tokenizer: Any,
    proxies: Sequence[str],
    threads: int,
    max_tokens: int = 0,
    by_length: bool = False,
) -> Reward:
    """The reward at a node, `reward` or `judge`; proxies stand in for models without a path.
    max_tokens: of the references it compares with, 0 for those of training. by_length: see
    ModelScorer."""
    cache = Path(config.output.cache)
    limit = max_tokens or response_tokens(config)
    device = chosen(config.generator.device, "generator.device")
    context = RewardContext(
        config.task, tokenizer, proxies, threads, limit, cache, device, by_length, key
    )
    return build_scorer(getattr(config, key), context)


def build_proxy(config: Config, sources: Sources, tokenizer: Any) -> Reward:
    """The run's reward as evaluation and validation read it."""
    threads = config.eval.threads
    return build_reward("reward", config, tokenizer, sources.proxies, threads, by_length=True)


def build_evaluator(
    config: Config, sources: Sources, loader: PolicyLoader | None = None
) -> Evaluator:
    """The evaluator of saved weights, on prompts and randomness of its own."""
    reference, tokenizer = (loader or PolicyLoader()).read(sources.policy, config.seed)
    policy, sampling_model = copy.deepcopy(reference), copy.deepcopy(reference)
    device = chosen(config.engine.device, "engine.device")
    prompts = build_eval_prompts(config, tokenizer, config.eval.most_prompts[1])
    sampled = build_player(config, sampling_model, tokenizer, "evaluation")
    judged = sampled
    how = config.eval.temperature or config.generator.temperature, judged_tokens(config)
    if how != (config.generator.temperature, response_tokens(config)):
        judged = build_player(config, sampling_model, tokenizer, "evaluation", *how)
    threads = config.eval.threads
    references: list[Group] = []
    if has_references(config):
        form = reference_form(config.task, as_text=not reads_reference_tokens(config))
        references = reference_groups(prompts, tokenizer, judged_tokens(config), form)
    gold = None
    if has_judge(config):
        gold = build_reward("judge", config, tokenizer, (), threads, judged_tokens(config))
    proxy = build_proxy(config, sources, tokenizer)
    return Evaluator(
        judged=judged,
        sampled=sampled,
        policy=policy.to(device),
        reference=reference.to(device),
        gold=gold,
        proxy=with_known_references(config, sources.proxies, tokenizer, proxy, references),
        prompts=prompts,
        references=references,
        pad_id=TextFrame(tokenizer).pad,
        temperature=config.generator.temperature,
        is_verified=is_verified(config),
        answering=config.task if config.task.has_answers else None,
        options=config.eval,
        has_policy_logps=sampled.is_float32 and policy.dtype is torch.float32,
        why_no_win_rate=why_no_win_rate(config),
    )
