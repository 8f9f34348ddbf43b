"""The tables of `rlhf-lab data`, and what their numbers mean for a run."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab.experiment.build.prompts import (
    build_prompts,
    prompt_reader,
    prompt_renderer,
)
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.data.examples import (
    Splits,
    refuse_copy,
    show_examples,
    show_frame,
    write_copy,
)
from rlhf_lab.experiment.rules.derived import (
    has_references,
    reads_reference_tokens,
    response_tokens,
)
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Limits, Overlap, Repeats, SplitAudit, audit_split, overlap
from rlhf_lab.tasks.prompts import Read, Render, fit, text_of
from rlhf_lab.tasks.references import (
    LongReferences,
    ReferenceForm,
    reference_form,
    reference_sample,
)
from rlhf_lab.tasks.tables import NoSuchFile
from rlhf_lab.types import limits as bounds
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Prompt, Split

# What becomes of them.
OF_LONG = {
    LongReferences.left_out: "SFT leaves them out, evaluation cuts them without an end token",
    LongReferences.cut: "SFT and evaluation cut them without an end token",
    LongReferences.cut_with_end: (
        "SFT and evaluation cut them and put an end token behind the cut, which teaches to stop "
        "there"
    ),
}
# Which split is looked for in which.
COMPARED = (
    (Split.validation, Split.train),
    (Split.test, Split.train),
    (Split.test, Split.validation),
)


def show_tables(
    config: Config,
    console: Console,
    audits: Sequence[SplitAudit],
    overlaps: Sequence[Overlap],
    has_tokens: bool,
) -> None:
    """Tables, then what they mean for a run."""
    console.table(
        f"rows of task={config.task.name}",
        ["split", "rows", "same prompt", "nearly the same", "same id"],
        [
            [
                a.split.value,
                f"{a.rows:,}",
                *(share(r.num, a.rows) for r in (a.same, a.near)),
                ids(a),
            ]
            for a in audits
        ],
    )
    show_columns(config, console, audits)
    counted = f", tokens of model={config.model.name}" if has_tokens else ""
    console.table(
        f"\nlengths{counted}",
        ["split", "of", "min", "mean", "median", "p95", "max", "limit", "over"],
        [row for a in audits for row in length_rows(a, has_references(config))],
    )
    if overlaps:
        console.table(
            f"\noverlap of prompts ({config.data.ngram} words in a row, in {config.data.common} "
            "rows at most)",
            ["prompts of", "in", "overlap", "same words throughout"],
            [
                [o.of.value, o.against.value, share(o.num, o.total), share(o.num_equal, o.total)]
                for o in overlaps
            ],
        )
    lines = [line for audit in audits for line in remarks(config, audit)]
    console.print("\n".join(["", *lines, *overlap_lines(overlaps)]))


def show_columns(config: Config, console: Console, audits: Sequence[SplitAudit]) -> None:
    """The columns of every split, how often they are empty, and if the task knows, their use."""
    task = config.task
    uses = task.uses()
    rows = [
        [a.split.value, name, share(a.empty[name], a.rows), used_as(name, uses)]
        for a in audits
        for name in a.columns
    ]
    if rows and uses:
        console.table("\ncolumns", ["split", "column", "empty", "used as"], rows)
    elif rows:
        console.table("\ncolumns", ["split", "column", "empty"], [row[:3] for row in rows])
    for note in task.notes():
        console.print(note)


def used_as(column: str, uses: Mapping[str, str]) -> str:
    """What a column is used for; of an object, what the parts of it are used for."""
    inner = [f"{use} ({name})" for name, use in uses.items() if name.startswith(f"{column}.")]
    return ", ".join([*([uses[column]] if column in uses else []), *inner]) or "-"


def ids(audit: SplitAudit) -> str:
    """Repeated ids, a dash where rows have none."""
    has_ids = any(name in audit.columns for name in ("id", "uid"))
    return share(audit.ids.num, audit.rows) if has_ids else "-"


def share(part: int, whole: int) -> str:
    """`12 (0.9%)`, or `0`."""
    if not part:
        return "0"
    percent = 100 * part / whole
    return f"{part:,} ({percent:.0f}%)" if percent >= 10 else f"{part:,} ({percent:.2g}%)"


def length_rows(audit: SplitAudit, has_references: bool) -> list[list[str]]:
    """The table's rows of one split, characters before tokens."""
    rows = []
    for kind, lengths in sorted(audit.lengths.items()):
        if kind.startswith("reference") and not has_references:
            continue
        limit = [f"{lengths.limit:,}", share(lengths.num_over, lengths.num)]
        quantiles = [f"{lengths.quantile(q):,}" for q in (0.5, 0.95, 1.0)]
        rows.append(
            [
                audit.split.value,
                kind,
                f"{lengths.quantile(0.0):,}",
                f"{lengths.mean:,.1f}",
                *quantiles,
                *(limit if lengths.limit else ["-", "-"]),
            ]
        )
    return rows


def remarks(config: Config, audit: SplitAudit) -> list[str]:
    """What a run would do about a split, and rows that repeat."""
    limit = config.task.max_prompt_tokens
    lines = []
    if audit.shortened:
        lines.append(f"{audit.split.value}: {audit.shortened:,} prompts are shortened to {limit}")
    if audit.too_long:
        lines.append(
            f"{audit.split.value}: {len(audit.too_long):,} prompts have more than "
            f"task.max_prompt_tokens={limit}; a run stops at the first: raise it, or pass data.out"
        )
    references, long = audit.lengths.get("reference tokens"), reference_form(config.task).long
    if references and references.num_over and has_references(config):
        lines.append(
            f"{audit.split.value}: {references.num_over:,} of {references.num:,} references have "
            f"more than {references.limit} tokens: {OF_LONG[long]} "
            f"(task.long_references={long})"
        )
    kinds: dict[str, Repeats] = {
        "the prompt of": audit.same,
        "nearly the prompt of": audit.near,
        "the id of": audit.ids,
    }
    for kind, repeats in kinds.items():
        lines += [f"{audit.split.value}: {row} has {kind} {first}" for row, first in repeats.named]
    return lines


def overlap_lines(overlaps: Sequence[Overlap]) -> list[str]:
    """The first few prompts that overlap, and what they share."""
    return [
        f"{o.of.value}: {row} shares with {other} of {o.against.value}: {text}"
        for o in overlaps
        for row, other, text in o.named
    ]


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
