"""`rlhf-lab data`: what is in a task's splits, what is wrong with it, and a copy without that."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from rlhf_lab.experiment.build_prompts import (
    build_prompts,
    prompt_reader,
    prompt_renderer,
)
from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.data_copy import Splits, refuse_copy, write_copy
from rlhf_lab.experiment.data_examples import show_examples, show_frame
from rlhf_lab.experiment.data_tables import show_tables
from rlhf_lab.experiment.derived import reads_reference_tokens, response_tokens
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Limits, Overlap, audit_split, overlap
from rlhf_lab.tasks.prompts import Read, Render, fit, text_of
from rlhf_lab.tasks.references import ReferenceForm, reference_form, reference_sample
from rlhf_lab.tasks.tables import NoSuchFile
from rlhf_lab.types import limits as bounds
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Prompt, Split

# Which split is looked for in which.
COMPARED = (
    (Split.validation, Split.train),
    (Split.test, Split.train),
    (Split.test, Split.validation),
)


def inspect(config: Config, console: Console) -> None:
    """Report on every split; or print a stretch of the run's prompts if data.show asks for it."""
    if config.data.show:
        show_prompts(config, console)
        return
    splits = readable_splits(config, console)
    if config.data.out:
        refuse_copy(config, splits)
    tokenizer = tokenizer_of(config, console) if config.data.tokens else None
    limits = limits_of(config, tokenizer)
    audits = []
    for split, examples in splits.items():
        total = min(config.data.limit or len(examples), len(examples))
        with console.stage(f"read {split.value}", total) as bar:
            audits.append(audit_split(split, examples, limits, config.data, bar.advance))
    overlaps = compare(config, splits, console)
    show_tables(config, console, audits, overlaps, has_tokens=limits.read is not None)
    if tokenizer is not None:
        show_frame(console, tokenizer, first_prompt(splits[Split.train], limits))
    show_examples(config, console, splits, limits)
    if config.data.out:
        write_copy(config, splits, audits, overlaps, console)


def readable_splits(config: Config, console: Console) -> Splits:
    """The splits that are there. Only train must be: a task without a test can be trained."""
    found = {Split.train: config.task.examples(Split.train)}
    for split in (Split.validation, Split.test):
        try:
            found[split] = config.task.examples(split)
        except NoSuchFile as error:
            console.print(f"{split.value}: left out ({error})")
    return found


def limits_of(config: Config, tokenizer: Any | None) -> Limits:
    """How the run would read prompts and references: as plain text if no tokenizer is there."""
    read: Read | None = None
    answer: Read | None = None
    render: Render = text_of
    if tokenizer is not None:
        read = prompt_reader(config.task, tokenizer)
        form = reference_form(config.task, as_text=not reads_reference_tokens(config))
        answer = functools.partial(reference_tokens, tokenizer, form)
        render = prompt_renderer(config.task, tokenizer)
    prompt, response = config.task.max_prompt_tokens, response_tokens(config)
    return Limits(read, config.task.shorter, prompt, response, render, answer)


def reference_tokens(tokenizer: Any, form: ReferenceForm, example: Example) -> list[int]:
    """All of an example's reference, with its end token."""
    prompt = Prompt(0, (), example)
    return list(reference_sample(prompt, tokenizer, bounds.MOST_TOKENS, form).tokens)


def first_prompt(examples: Sequence[Example], limits: Limits) -> Prompt:
    """The first prompt of a split, as the model reads it."""
    assert limits.read is not None
    example, tokens = fit(examples[0], limits.read, limits.shorten, limits.prompt)
    return Prompt(0, tokens, example)


def tokenizer_of(config: Config, console: Console) -> Any | None:
    """The tokenizer of the run's model. None, with the reason, if there is none: rows can be looked
    at without a model."""
    try:
        return load_tokenizer(config.model, config.task.tokenizer())
    except UserError as error:
        console.print(f"lengths are in characters and words, not in tokens: {error}")
        return None


def compare(config: Config, splits: Splits, console: Console) -> list[Overlap]:
    """Every split against those that come before it."""
    found = []
    for of, against in COMPARED:
        if of in splits and against in splits:
            total = min(config.data.limit or len(splits[against]), len(splits[against]))
            with console.stage(f"look for {of.value} in {against.value}", total) as bar:
                found.append(overlap(of, against, splits, config.data, bar.advance))
    return found


def show_prompts(config: Config, console: Console) -> None:
    """The prompts that a run with this seed sees from a position on."""
    tokenizer = load_tokenizer(config.model, config.task.tokenizer())
    stream = build_prompts(config, tokenizer, Split.train, "rollout")
    for cursor in range(config.data.start, config.data.start + config.data.show):
        prompt = stream[cursor]
        epoch, position = divmod(cursor, len(stream))
        console.print(
            f"prompt {cursor}: epoch {epoch}, {position + 1} of {len(stream)}, "
            f"{prompt.example.uid}, {len(prompt.tokens)} tokens"
        )
        console.print("\n".join(f"  | {line}" for line in prompt.example.prompt.splitlines()))
