"""Judge a run on another task than its own: what it forgot (RL's Razor, arXiv:2509.04259)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from rlhf_lab.experiment.checks import check
from rlhf_lab.experiment.config import Config, plain
from rlhf_lab.rewards.options import num_proxies
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import TextFrame


def is_second_task(config: Config, own: Config) -> bool:
    """Whether this evaluation is of another task than the run that had the config `own`. A policy
    that a stage made began with what its task's options say; others may find a moved file."""
    if own.model.begins_by_stage:
        return bool(plain(config.task) != plain(own.task))
    return bool(config.task.name != own.task.name)


def on_second_task(config: Config, own: Config) -> Config:
    """The config that judges the run's policy on another task: tasks bring models, which the run
    does not take. Raises UserError with the key and the remedy for what does not fit."""
    name = config.task.name
    if not config.eval.label:
        raise UserError(
            f"task={name} with eval.label='': evals.jsonl has the scores of the run's own task, "
            f"{own.task.name}; pass eval.label=NAME to write evals-NAME.jsonl"
        )
    if num_proxies(config.reward):
        raise UserError(
            f"reward={config.reward.name} with task={name}: it would be trained on preferences of "
            f"that task, which the run had none of; pass reward=task_rule, or another reward that "
            "needs no training"
        )
    found = replace(config, model=own.model, proxy=own.proxy)
    check(found)
    return found


def require_known_texts(config: Config, own: Config, tokenizer: Any) -> None:
    """Raise UserError if the run's tokenizer cannot read what evaluation asks of this task."""
    num = config.eval.most_prompts[1]
    examples = config.task.examples(config.eval.split)
    asked = [examples[index] for index in range(min(num, len(examples)))]
    texts = [text for one in asked for text in (one.prompt, one.reference) if text]
    unknown = list(unknown_texts(texts, tokenizer.unk_token_id, TextFrame(tokenizer).inside))
    if unknown:
        raise UserError(
            f"task={config.task.name}: the tokenizer that the run learned {own.task.name} with "
            f"cannot read {len(unknown)} of {len(texts)} texts, such as {unknown[0][:60]!r}: "
            "choose a task of its vocabulary, or a run of a pretrained model"
        )


def unknown_texts(
    texts: Iterable[str], unknown: int | None, encode: Callable[[str], list[int]]
) -> Iterable[str]:
    """Those in which a part has no token. unknown: the token that stands for such parts."""
    for text in texts:
        try:
            tokens = encode(text)
        except Exception:  # what tokenizers raises where nothing stands for them
            yield text
            continue
        if unknown is not None and unknown in tokens:
            yield text
