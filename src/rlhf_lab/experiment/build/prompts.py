"""The prompts of a config: of the rounds, of the stages, and of evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.derived import (
    pair_columns,
    pairs_file,
    reads_reference_tokens,
    response_tokens,
    trains_on_labels,
)
from rlhf_lab.rewards.data_rewards import PreferenceScorer
from rlhf_lab.rewards.options import parts
from rlhf_lab.rollout.generators.pairs import PairsGenerator
from rlhf_lab.tasks import chat
from rlhf_lab.tasks.chat_turns import check_turns
from rlhf_lab.tasks.examples import ChosenExamples, as_examples
from rlhf_lab.tasks.pair_sources import pair_examples
from rlhf_lab.tasks.pairs import PairColumns
from rlhf_lab.tasks.prompts import (
    EveryPrompt,
    PromptSelection,
    PromptStream,
    Read,
    RememberedPrompts,
    Render,
    WithOffline,
)
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Prompt, Split


def build_prompts(
    config: Config, tokenizer: Any, split: Split, purpose: str, shuffle: bool = True
) -> PromptStream:
    """The endless stream of a split's prompts, in an order keyed by seed and purpose."""
    return stream_of(examples_of(config, split), config, tokenizer, purpose, shuffle)


def examples_of(config: Config, split: Split) -> Sequence[Example]:
    """The rows of a split, with the columns that functions of reward and judge ask for."""
    examples = as_examples(config.task.examples(split))
    wanted: dict[str, None] = {}
    for node in (config.reward, config.judge):
        for part in parts(node):
            if part.columns is None:
                return examples.keeping(None)
            wanted.update(dict.fromkeys(part.columns))
    return examples.keeping(tuple(wanted))


def build_rollout_prompts(
    config: Config, pairs: str, tokenizer: Any, report: Callable[[str], None] = lambda _: None
) -> PromptStream | WithOffline:
    """The prompts of the rounds: the task's, those of the set of fixed pairs, every one of which
    is checked now, or a share of both. report: gets what was left out."""
    if not config.generator.draws_samples:
        stream = pair_prompts(config, pairs, tokenizer, "rollout", report)
        scorer = PreferenceScorer(config.generator.pair_scores)
        for index in range(len(stream)):
            scorer.rewards(stream[index].example)
        return stream
    stream = build_prompts(config, tokenizer, Split.train, "rollout")
    if not config.run.offline_share:
        return stream
    offline = pair_prompts(config, pairs, tokenizer, "offline", report)
    return WithOffline(stream, offline, config.run.offline_share)


def build_selection(config: Config, stream: PromptStream | WithOffline) -> PromptSelection:
    """Which prompts of the stream each round has."""
    if config.run.remembers_prompts and isinstance(stream, PromptStream):
        return RememberedPrompts(stream, config.run, config.mode.max_staleness)
    return EveryPrompt(stream, config.run.groups_generated)


def pair_prompts(
    config: Config, pairs: str, tokenizer: Any, purpose: str, report: Callable[[str], None]
) -> PromptStream:
    """The prompts of a set of fixed pairs, whose answers are checked now. Those that are equal, as
    they are or after the cut at the response length, are left out and counted."""
    key = pairs_file(config)[1]
    columns = PairColumns() if trains_on_labels(config) else pair_columns(config)
    examples = pair_examples(pairs, key, columns)
    most, form = response_tokens(config), config.task.chat_form
    generator = PairsGenerator(tokenizer, most, key, form=form)
    kept = [index for index, one in enumerate(examples) if not generator.is_tie(one)]
    num_cut = len(examples) - len(kept)
    if num_ties := examples.rows.num_ties:
        report(f"{num_ties:,} pairs are left out: their answers are equal")
    if num_cut:
        report(
            f"{num_cut:,} pairs are left out: their answers are equal after the cut at {most} "
            f"tokens; generator.max_new_tokens cuts later"
        )
    if not kept:
        raise UserError(
            f"{key}={pairs}: all {num_cut} pairs have equal answers after the cut at {most} "
            "tokens: raise generator.max_new_tokens"
        )
    chosen = ChosenExamples(examples, kept)
    stream = stream_of(chosen, config, tokenizer, purpose, shuffle=True)
    stream.require_fit(len(stream))
    return stream


def build_eval_prompts(config: Config, tokenizer: Any, num: int) -> list[Prompt]:
    """The first prompts that every evaluation of the task uses, whatever the seed; all of a split
    that has fewer."""
    stream = build_prompts(config, tokenizer, config.eval.split, "evaluation", shuffle=False)
    return [stream[index] for index in range(min(num, len(stream)))]


def chat_note(config: Config, tokenizer: Any) -> str:
    """That plain prompts are read as chats, where task.chat=auto decides so; "" elsewhere."""
    form = config.task.chat_form
    if not form.takes_plain:
        return ""
    first = config.task.examples(Split.train)[0]
    if first.messages or not chat.rendered_messages(tokenizer, form, first):
        return ""
    return (
        "task.chat=auto: a prompt is a user's message in the model's chat template; "
        "task.chat=false reads it as it is"
    )


def stream_of(
    examples: Sequence[Example], config: Config, tokenizer: Any, purpose: str, shuffle: bool
) -> PromptStream:
    """An endless stream of prompts made of these examples."""
    if len(examples):
        form = config.task.chat_form
        chat.check_end(tokenizer, form, examples[0])
        if reads_reference_tokens(config) and chat.rendered_messages(tokenizer, form, examples[0]):
            # Evaluation would find it after the last step.
            chat.answer_tokens(tokenizer, form, examples[0], examples[0].reference)
        check_turns(config.task, tokenizer, examples[0])
    kept = examples
    if config.task.drop_long:
        kept = short_enough(examples, config, tokenizer)
    return PromptStream(
        kept,
        prompt_reader(config.task, tokenizer),
        seed=stable_hash(config.seed, purpose),
        max_prompt_tokens=config.task.max_prompt_tokens,
        shuffle=shuffle,
        shorten=config.task.shorter,
        render=prompt_renderer(config.task, tokenizer),
        num_dropped=len(examples) - len(kept),
    )


def short_enough(examples: Sequence[Example], config: Config, tokenizer: Any) -> Sequence[Example]:
    """The examples whose prompts have at most task.max_prompt_tokens."""
    read, most = prompt_reader(config.task, tokenizer), config.task.max_prompt_tokens
    kept = [index for index, example in enumerate(examples) if len(read(example)) <= most]
    return ChosenExamples(examples, kept)


def prompt_reader(task: Task, tokenizer: Any) -> Read:
    """How a policy reads a prompt: as a text in its frame, or as a chat in its template."""
    return functools.partial(chat.encode, tokenizer, task.chat_form)


def prompt_renderer(task: Task, tokenizer: Any) -> Render:
    """The text that a policy reads of a prompt: the prompt, or a chat in its chat template."""
    return functools.partial(chat.text, tokenizer, task.chat_form)
