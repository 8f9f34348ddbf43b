"""Whether the prompts of a run fit task.max_prompt_tokens: by the tokenizer alone, before weights
are loaded and stages are trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rlhf_lab.experiment.build.prompts import examples_of, prompt_reader, stream_of
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.planning.forecast import evaluates, makes_labels
from rlhf_lab.experiment.rules.derived import pair_columns, pairs_file
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.tasks.examples import LazyExamples
from rlhf_lab.tasks.pair_sources import pair_examples
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split


def require_fit(config: Config) -> None:
    """Refuse prompts of the run, its stages and its evaluation that are too long."""
    tokenizer = load_tokenizer(config.model, config.task.tokenizer())
    path, key = pairs_file(config)
    if path:
        pairs = pair_examples(path, key, pair_columns(config))
        stream_of(pairs, config, tokenizer, "offline", shuffle=False).require_fit(sys.maxsize)
    for split, count in used_prompts(config):
        examples = examples_of(config, split)
        if isinstance(examples, LazyExamples):
            continue  # as long as the task makes them, and costly to make
        if config.task.drop_long:
            require_one(config, split, tokenizer)
            continue
        is_train = split is Split.train
        purpose = "rollout" if is_train else "evaluation"
        stream_of(examples, config, tokenizer, purpose, shuffle=is_train).require_fit(count)


def used_prompts(config: Config) -> Iterator[tuple[Split, int]]:
    """How many prompts of a split are read, in the order of rollouts or of evaluation."""
    run = config.run
    # Stages have an order of their own, and a selection may pass over rows.
    if config.model.begins_by_stage or makes_labels(config) or run.remembers_prompts:
        yield Split.train, sys.maxsize
    elif config.generator.draws_samples:
        yield Split.train, run.num_rounds * run.groups_generated
    if evaluates(config):
        yield config.eval.split, config.eval.most_prompts[1]


def require_one(config: Config, split: Split, tokenizer: Any) -> None:
    """Refuse rows that task.drop_long would leave out all."""
    read, most = prompt_reader(config.task, tokenizer), config.task.max_prompt_tokens
    if not any(len(read(example)) <= most for example in examples_of(config, split)):
        raise UserError(
            f"task.drop_long=true: all prompts of split {split.value} have more than "
            f"task.max_prompt_tokens={most}: raise it"
        )


def left_out_note(config: Config, num: int) -> str:
    """That an evaluation answers fewer prompts than its option and its split allow, since long ones
    are left out; "" if it does not. num: of the prompts that it answers."""
    key, prompts = config.eval.most_prompts
    if num >= min(prompts, len(config.task.examples(config.eval.split))):
        return ""
    return (
        f"{key}={prompts}: {num} prompts are judged, and no others of split "
        f"{config.eval.split.value} have at most task.max_prompt_tokens="
        f"{config.task.max_prompt_tokens} (task.drop_long=true)"
    )
