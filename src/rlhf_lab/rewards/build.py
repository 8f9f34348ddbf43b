"""Options of a reward -> the live reward. The only module that names the classes of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.models.devices import chosen
from rlhf_lab.models.reward_model import chosen_label, load_reward_model
from rlhf_lab.rewards.combined import CombinedReward, CombinedScorer, PerTaskReward, PerTaskScorer
from rlhf_lab.rewards.data_rewards import (
    EnvironmentReward,
    EnvironmentScorer,
    RuleReward,
    RuleScorer,
)
from rlhf_lab.rewards.fields import AUTO
from rlhf_lab.rewards.function import FunctionReward, is_local
from rlhf_lab.rewards.judge.calls import JudgeCache, JudgeCalls
from rlhf_lab.rewards.judge.options import EndpointReward
from rlhf_lab.rewards.judge.scorer import JudgeScorer
from rlhf_lab.rewards.limited import SampleScorer
from rlhf_lab.rewards.model import (
    CPU,
    ModelScorer,
    chat_encoder,
    encoder,
    reads_last_token,
    require_token_scores,
    steps_encoder,
)
from rlhf_lab.rewards.model_options import (
    EnsembleReward,
    EnsembleScorer,
    LearnedReward,
    ModelReward,
)
from rlhf_lab.rewards.nobody import NoJudge
from rlhf_lab.rewards.options import RewardOptions, reads_tokens
from rlhf_lab.rewards.steps import StepsScorer
from rlhf_lab.rewards.steps_options import StepsReward
from rlhf_lab.tasks.protocols import Task
from rlhf_lab.tasks.references import reference_form, reference_sample
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward_protocols import Reward
from rlhf_lab.types.samples import Group, Prompt, Sample
from rlhf_lab.types.text_frame import TextFrame


@dataclass(frozen=True)
class RewardContext:
    """What a reward needs besides its options.

    tokenizer: the policy's. proxies: folders of the proxies that the pipeline trained, which stand
    in for models that no path names. response_limit: in tokens. cache: folder of all products.
    device: where reward models run that name none. by_length: see ModelScorer. key: where the
    options are mounted.
    """

    task: Task
    tokenizer: Any
    proxies: Sequence[str]
    threads: int
    response_limit: int
    cache: Path
    device: torch.device = CPU
    by_length: bool = False
    key: str = "reward"

    def device_of(self, options: ModelReward | StepsReward) -> torch.device:
        """Where a reward model runs. Raises UserError for a device that is not here."""
        if options.device == AUTO:
            return self.device
        return chosen(options.device, f"{self.key}.device")

    def at(self, name: str) -> RewardContext:
        """The same for a term."""
        return replace(self, key=f"{self.key}.terms.{name}")

    def reference_for(self, options: RewardOptions) -> Callable[[Group], Sample]:
        """Gives the reference answer to a group's prompt, as the reward of these options reads
        it."""
        form = reference_form(self.task, as_text=not reads_tokens(options))

        def reference(group: Group) -> Sample:
            return reference_sample(group.prompt, self.tokenizer, self.response_limit, form)

        return reference


def build_scorer(options: Any, context: RewardContext) -> Reward:
    """The live reward of a config node. Options of plugins build their own."""
    build = BUILDERS.get(type(options))
    reward: Reward = build(options, context) if build else options.build(context)
    return reward


def build_rule(options: RuleReward, context: RewardContext) -> Reward:
    return RuleScorer(context.task, options)


def build_function(options: FunctionReward, context: RewardContext) -> Reward:
    frame = TextFrame(context.tokenizer)

    def text_of(sample: Sample) -> str:
        return (
            frame.text(sample.answer, keep_special=True) if options.special_tokens else sample.text
        )

    def prompt_text(prompt: Prompt) -> str:
        example = prompt.example
        is_read = example.messages and prompt.tokens
        return frame.text(prompt.tokens, keep_special=True) if is_read else example.prompt

    return SampleScorer(
        options.scoring,
        options.time_limit_s,
        options.on_error,
        text_of,
        None if is_local(options) else options.workers,
        prompt_text,
    )


def build_model(options: ModelReward, context: RewardContext) -> Reward:
    return build_member(options, options.path or context.proxies[0], context, "path")


def build_member(options: ModelReward, path: str, context: RewardContext, name: str) -> Reward:
    """The reward of a model that the option `name` names, or the pipeline trained."""
    key = f"{context.key}.{name}"
    model, own_tokenizer, offset = load_reward_model(path, key, options.tokenizer)
    labelled = replace(options, label=chosen_label(model, path, options.label, key))
    if options.chat:
        encode = chat_encoder(own_tokenizer, path, key)
    else:
        encode = encoder(context.tokenizer, own_tokenizer, reads_last_token(model))
    device = context.device_of(options)
    return ModelScorer(model, offset, labelled, encode, context.threads, device, context.by_length)


def build_ensemble(options: EnsembleReward, context: RewardContext) -> Reward:
    names = [f.name for f in fields(LearnedReward) if f.name != "name"]
    shared = {name: getattr(options, name) for name in names}
    paths = options.model_paths(context.proxies)
    members = [
        build_member(ModelReward(path=path, **shared), path, context, options.paths_key)
        for path in paths
    ]
    return EnsembleScorer(options, members)


def build_steps(options: StepsReward, context: RewardContext) -> Reward:
    key = f"{context.key}.path"
    model, own_tokenizer, offset = load_reward_model(options.path, key, options.tokenizer)
    require_token_scores(model, options.path, key)
    decode = TextFrame(context.tokenizer).text
    read = steps_encoder(context.tokenizer, own_tokenizer, options.path, key, decode)
    device = context.device_of(options)
    return StepsScorer(model, offset, options, decode, read, context.threads, device)


def build_combined(options: CombinedReward, context: RewardContext) -> Reward:
    terms = {name: build_scorer(term, context.at(name)) for name, term in options.terms.items()}
    return CombinedScorer(options, terms, context.reference_for(options))


def build_per_task(options: PerTaskReward, context: RewardContext) -> Reward:
    return PerTaskScorer(
        {name: build_scorer(term, context.at(name)) for name, term in options.terms.items()}
    )


def build_endpoint(options: EndpointReward, context: RewardContext) -> Reward:
    cache = JudgeCache(Path(options.cache) if options.cache else context.cache / "judge")
    return JudgeScorer(
        options, JudgeCalls(options, options.api_key(), cache), context.reference_for(options)
    )


def build_environment(options: EnvironmentReward, context: RewardContext) -> Reward:
    return EnvironmentScorer()


def build_nobody(options: NoJudge, context: RewardContext) -> Reward:
    raise UserError(
        "judge=none: nobody judges here, and this needs a judge: pass reward@judge=function "
        "judge.path=MODULE.FUNCTION, or another option of group reward"
    )


BUILDERS: dict[type, Callable[[Any, RewardContext], Reward]] = {
    RuleReward: build_rule,
    FunctionReward: build_function,
    ModelReward: build_model,
    EnsembleReward: build_ensemble,
    CombinedReward: build_combined,
    PerTaskReward: build_per_task,
    EndpointReward: build_endpoint,
    StepsReward: build_steps,
    EnvironmentReward: build_environment,
    NoJudge: build_nobody,
}
