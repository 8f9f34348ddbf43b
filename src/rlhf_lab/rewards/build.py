"""Options of a reward -> the live reward. The only place that names their classes."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from rlhf_lab.models.reward_model import chosen_label, load_reward_model
from rlhf_lab.rewards.combined import CombinedReward, CombinedScorer
from rlhf_lab.rewards.endpoint import EndpointReward
from rlhf_lab.rewards.ensemble import EnsembleReward, EnsembleScorer
from rlhf_lab.rewards.function import FunctionJudge, FunctionReward
from rlhf_lab.rewards.judge import JudgeScorer
from rlhf_lab.rewards.judge_cache import JudgeCache
from rlhf_lab.rewards.judge_calls import JudgeCalls
from rlhf_lab.rewards.judge_client import key_of
from rlhf_lab.rewards.limited import SampleScorer
from rlhf_lab.rewards.model import CPU, Encode, ModelReward, ModelScorer, reads_last_token
from rlhf_lab.rewards.rule import RuleReward, RuleScorer
from rlhf_lab.rewards.steps import StepsReward, StepsScorer
from rlhf_lab.tasks import chat
from rlhf_lab.tasks.protocols import Task
from rlhf_lab.tasks.references import reference_sample
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Reward
from rlhf_lab.types.samples import Group, Sample


@dataclass(frozen=True)
class RewardContext:
    """What a reward needs besides its options.

    tokenizer: the policy's. proxies: folders of the proxies that the pipeline trained, which stand
    in for models that no path names. response_limit: in tokens. cache: folder of all products.
    device: where reward models run.
    """

    task: Task
    tokenizer: Any
    proxies: Sequence[str]
    threads: int
    response_limit: int
    cache: Path
    device: torch.device = CPU


def rule(options: RuleReward, given: RewardContext) -> Reward:
    return RuleScorer(given.task, options)


def function(options: FunctionReward, given: RewardContext) -> Reward:
    judge = FunctionJudge(options.path, options.arguments)
    return SampleScorer(judge, options.time_limit_s, options.on_error)


def model(options: ModelReward, given: RewardContext) -> Reward:
    path = options.path or given.proxies[0]
    loaded, own_tokenizer, offset = load_reward_model(path)
    chosen = replace(options, label=chosen_label(loaded, path, options.label))
    if options.chat:
        encode = chat_encoder(own_tokenizer, path)
    else:
        encode = encoder(given.tokenizer, own_tokenizer, reads_last_token(loaded))
    return ModelScorer(loaded, offset, chosen, encode, given.threads, given.device)


def ensemble(options: EnsembleReward, given: RewardContext) -> Reward:
    paths = options.paths or given.proxies[: options.members]
    names = [f.name for f in fields(ModelReward) if f.name not in ("name", "path")]
    shared = {name: getattr(options, name) for name in names}
    members = [model(ModelReward(path=path, **shared), given) for path in paths]
    return EnsembleScorer(options, members)


def steps(options: StepsReward, given: RewardContext) -> Reward:
    loaded, own_tokenizer, offset = load_reward_model(options.path)
    if not reads_last_token(loaded) or loaded.config.num_labels != 1:
        raise UserError(
            f"reward.path={options.path}: it has no single score for every token; pass a decoder "
            "saved as sequence classification with one label"
        )
    decode = functools.partial(given.tokenizer.decode, skip_special_tokens=True)
    if given.tokenizer.get_vocab() == own_tokenizer.get_vocab():
        read = steps_as_tokens
    elif own_tokenizer.is_fast:
        read = functools.partial(steps_as_text, own_tokenizer, decode)
    else:
        raise UserError(
            f"reward.path={options.path}: its tokenizer cannot tell which token stands where in a "
            "text, and its vocabulary is not the policy's; choose a model with a fast tokenizer"
        )
    return StepsScorer(loaded, offset, options, decode, read, given.threads, given.device)


def combined(options: CombinedReward, given: RewardContext) -> Reward:
    terms = {name: scorer(term, given) for name, term in options.terms.items()}
    return CombinedScorer(options, terms, functools.partial(reference, given))


def endpoint(options: EndpointReward, given: RewardContext) -> Reward:
    cache = JudgeCache(Path(options.cache) if options.cache else given.cache / "judge")
    calls = JudgeCalls(options, key_of(options), cache)
    return JudgeScorer(options, calls, functools.partial(reference, given))


def reference(given: RewardContext, group: Group) -> Sample:
    """The reference answer to a group's prompt."""
    return reference_sample(group.prompt, given.tokenizer, given.response_limit)


MAKERS: dict[type, Callable[[Any, RewardContext], Reward]] = {
    RuleReward: rule,
    FunctionReward: function,
    ModelReward: model,
    EnsembleReward: ensemble,
    CombinedReward: combined,
    EndpointReward: endpoint,
    StepsReward: steps,
}


def scorer(options: Any, given: RewardContext) -> Reward:
    """The live reward of a config node."""
    return MAKERS[type(options)](options, given)


def parts(options: Any) -> Iterator[Any]:
    """A reward's options and those of all of its terms."""
    yield options
    for term in getattr(options, "terms", {}).values():
        yield from parts(term)


def named_parts(key: str, options: Any) -> Iterator[tuple[str, Any]]:
    """The same with the place of each in the config."""
    yield key, options
    for name, term in getattr(options, "terms", {}).items():
        yield from named_parts(f"{key}.terms.{name}", term)


def num_proxies(options: Any) -> int:
    """How many proxies the pipeline must train for a reward."""

    def of_part(part: Any) -> int:
        if isinstance(part, ModelReward):
            return int(not part.path)
        return part.members if isinstance(part, EnsembleReward) and not part.paths else 0

    return max(map(of_part, parts(options)))


def reading_paths(options: Any, proxies: Sequence[str]) -> list[str]:
    """All models that a reward reads every sample with, those of single steps among them."""
    steps_ = [part.path for part in parts(options) if isinstance(part, StepsReward)]
    return model_paths(options, proxies) + steps_


def model_paths(options: Any, proxies: Sequence[str]) -> list[str]:
    """The reward models of whole samples among them."""
    found: list[str] = []
    for part in parts(options):
        if isinstance(part, ModelReward):
            found.append(part.path or proxies[0])
        if isinstance(part, EnsembleReward):
            found += part.paths or proxies[: part.members]
    return found


def encoder(policy_tokenizer: Any, reward_tokenizer: Any, ends_with_eos: bool = True) -> Encode:
    """How a reward model reads a sample: its tokens if the vocabulary is shared, else its text.

    ends_with_eos: as a decoder does, which scores the end token; others, and those whose tokenizer
    has no end token, get the special tokens that their tokenizer puts around a text.
    """
    if not ends_with_eos or reward_tokenizer.eos_token_id is None:
        return functools.partial(as_own_text, reward_tokenizer)
    if policy_tokenizer.get_vocab() == reward_tokenizer.get_vocab():
        return as_tokens
    return functools.partial(as_text, reward_tokenizer)


def chat_encoder(reward_tokenizer: Any, path: str) -> Encode:
    """Reading through the tokenizer's chat template. Raises UserError if it has none."""
    if not reward_tokenizer.chat_template:
        raise UserError(
            f"reward.chat=true, but the tokenizer of reward.path={path} has no chat template: pass "
            "reward.chat=false, or a reward model that was trained on chats"
        )
    return functools.partial(as_chat, reward_tokenizer)


def as_tokens(group: Group, sample: Sample) -> Sequence[int]:
    return [*group.prompt.tokens, *sample.tokens]


def steps_as_tokens(
    group: Group, sample: Sample, ends: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """A sample as it is, and the places of its steps' last tokens."""
    prompt = group.prompt.tokens
    return [*prompt, *sample.tokens], [len(prompt) + end for end in ends]


def steps_as_text(
    tokenizer: Any,
    decode: Callable[[Sequence[int]], str],
    group: Group,
    sample: Sample,
    ends: Sequence[int],
) -> tuple[Sequence[int], Sequence[int]]:
    """A sample in another vocabulary; a step ends with the last token that begins in it."""
    prompt = group.prompt.example.prompt
    read = tokenizer(
        prompt + decode(sample.tokens), add_special_tokens=False, return_offsets_mapping=True
    )
    tokens = read["input_ids"]
    starts = [start for start, _ in read["offset_mapping"]]
    stops = [len(prompt) + len(decode(sample.tokens[: end + 1])) for end in ends]
    return tokens, [bisect_left(starts, stop) - 1 for stop in stops]


def as_text(tokenizer: Any, group: Group, sample: Sample) -> Sequence[int]:
    example = group.prompt.example
    if example.messages and tokenizer.chat_template:
        start = chat.encode(tokenizer, "", example)
        text = sample.text
    else:
        start, text = [], example.prompt + sample.text
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*start, *tokens, tokenizer.eos_token_id]


def as_own_text(tokenizer: Any, group: Group, sample: Sample) -> Sequence[int]:
    tokens: list[int] = tokenizer(group.prompt.example.prompt + sample.text)["input_ids"]
    return tokens


def as_chat(tokenizer: Any, group: Group, sample: Sample) -> Sequence[int]:
    """The example's messages, or its prompt as the user's, and the response as the assistant's."""
    example = group.prompt.example
    asked = example.messages or (("user", example.prompt),)
    told = [*asked, ("assistant", sample.text)]
    text = chat.rendered(tokenizer, "", example, told, is_open=False)
    tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokens
