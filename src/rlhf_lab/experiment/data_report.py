"""`rlhf-lab data`: what is in a task's splits, what is wrong with it, and a copy without that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from rlhf_lab.experiment import build
from rlhf_lab.experiment.checks import response_tokens
from rlhf_lab.experiment.config import Config
from rlhf_lab.models.causal_lm import load_tokenizer
from rlhf_lab.runs.atomic_folder import atomic_folder
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Limits, SplitAudit, audit_split
from rlhf_lab.tasks.lengths import Repeats
from rlhf_lab.tasks.overlap import Overlap, overlap
from rlhf_lab.tasks.prompts import Render, text_of
from rlhf_lab.tasks.tables import NoSuchFile, TableExamples
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

Splits = Mapping[Split, Sequence[Example]]
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
    limits = limits_of(config)
    audits = []
    for split, examples in splits.items():
        total = min(config.data.limit or len(examples), len(examples))
        with console.stage(f"read {split.value}", total) as bar:
            audits.append(audit_split(split, examples, limits, config.data, bar.advance))
    overlaps = compare(config, splits, console)
    report(config, console, audits, overlaps)
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


def limits_of(config: Config) -> Limits:
    """How the run would read prompts and references."""
    encode = None
    render: Render = text_of
    if config.data.tokens:
        tokenizer = load_tokenizer(config.model, config.task.tokenizer())
        encode = build.prompt_encoder(tokenizer)
        render = build.rendering(config.task, tokenizer)
    prompt, response = config.task.max_prompt_tokens, response_tokens(config)
    return Limits(encode, build.shortening(config.task), prompt, response, render)


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
    stream = build.prompts(config, tokenizer, Split.train, "rollout")
    for cursor in range(config.data.start, config.data.start + config.data.show):
        prompt = stream[cursor]
        epoch, place = divmod(cursor, len(stream))
        console.print(
            f"prompt {cursor}: epoch {epoch}, {place + 1} of {len(stream)}, "
            f"{prompt.example.uid}, {len(prompt.tokens)} tokens"
        )
        console.print("\n".join(f"  | {line}" for line in prompt.example.prompt.splitlines()))


def report(
    config: Config, console: Console, audits: Sequence[SplitAudit], overlaps: Sequence[Overlap]
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
    columns = [
        [a.split.value, name, share(a.empty[name], a.rows)] for a in audits for name in a.columns
    ]
    if columns:
        console.table("\ncolumns", ["split", "column", "empty"], columns)
    counted = f", tokens of model={config.model.name}" if config.data.tokens else ""
    console.table(
        f"\nlengths{counted}",
        ["split", "of", "min", "mean", "median", "p95", "max", "limit", "over"],
        [row for a in audits for row in length_rows(a)],
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
    told = [*(line for a in audits for line in remarks(config, a)), *named(overlaps)]
    console.print("\n".join(["", *told]))


def repeated(audit: SplitAudit, repeats: Repeats) -> str:
    """How many rows say what an earlier one said."""
    return share(repeats.num, audit.rows)


def ids(audit: SplitAudit) -> str:
    """Repeated ids, a dash where rows have none."""
    has_ids = any(name in audit.columns for name in ("id", "uid"))
    return repeated(audit, audit.ids) if has_ids else "-"


def share(part: int, whole: int) -> str:
    """`12 (0.9%)`, or `0`."""
    if not part:
        return "0"
    percent = 100 * part / whole
    return f"{part:,} ({percent:.0f}%)" if percent >= 10 else f"{part:,} ({percent:.2g}%)"


def length_rows(audit: SplitAudit) -> list[list[str]]:
    """The table's rows of one split, characters before tokens."""
    rows = []
    for kind, lengths in sorted(audit.lengths.items()):
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
    told = []
    if audit.shortened:
        told.append(f"{audit.split.value}: {audit.shortened:,} prompts are shortened to {limit}")
    if audit.too_long:
        told.append(
            f"{audit.split.value}: {len(audit.too_long):,} prompts have more than "
            f"task.max_prompt_tokens={limit}; a run stops at the first: raise it, or pass data.out"
        )
    references = audit.lengths.get("reference tokens")
    if references and references.num_over:
        told.append(
            f"{audit.split.value}: {references.num_over:,} references are cut to "
            f"{references.limit} tokens in SFT and evaluation"
        )
    kinds: dict[str, Repeats] = {
        "the prompt of": audit.same,
        "nearly the prompt of": audit.near,
        "the id of": audit.ids,
    }
    for kind, repeats in kinds.items():
        told += [f"{audit.split.value}: {row} has {kind} {first}" for row, first in repeats.named]
    return told


def named(overlaps: Sequence[Overlap]) -> list[str]:
    """The first few prompts that overlap, and what they share."""
    return [
        f"{o.of.value}: {row} shares with {other} of {o.against.value}: {text}"
        for o in overlaps
        for row, other, text in o.named
    ]


def refuse_copy(config: Config, splits: Splits) -> None:
    """A copy is made of rows that exist, in a folder that does not."""
    out = Path(config.data.out)
    if out.exists():
        raise UserError(f"data.out={out} is there already: name a new folder")
    if not all(isinstance(examples, TableExamples) for examples in splits.values()):
        raise UserError(
            f"data.out={out}: rows of task={config.task.name} are made on demand, so there is "
            "nothing to copy; data.out is for tasks that read files or the hub"
        )


def write_copy(
    config: Config,
    splits: Splits,
    audits: Sequence[SplitAudit],
    overlaps: Sequence[Overlap],
    console: Console,
) -> None:
    """Write every split as JSONL, train without its bad rows; the folder appears when it is whole.

    Validation and test stay as they are, so that results remain comparable.
    """
    train = audits[0]
    overlapping = {row for o in overlaps if o.against is Split.train for row in o.rows}
    dropped = train.repeated | train.too_long | overlapping
    if len(dropped) == train.rows:
        raise UserError(
            f"data.out={config.data.out}: no train row is left (repeated {len(train.repeated)}, "
            f"too long {len(train.too_long)}, overlapping {len(overlapping)}): check that the "
            "splits are not one file"
        )
    counts = {
        "rows": train.rows,
        "repeated": len(train.repeated),
        "too_long": len(train.too_long),
        "overlapping": len(overlapping),
        "kept": train.rows - len(dropped),
    }
    out = Path(config.data.out)
    with atomic_folder(out, {"stage": "data", "train": counts}) as draft:
        for split, examples in splits.items():
            assert isinstance(examples, TableExamples)
            without = dropped if split is Split.train else set()
            append_rows(draft / f"{examples.split_file}.jsonl", examples, without)
    console.print(
        f"\nwrote {out}: {counts['kept']:,} of {counts['rows']:,} train rows (left out: "
        f"{counts['repeated']:,} repeated, {counts['overlapping']:,} overlapping, "
        f"{counts['too_long']:,} too long); validation and test as they were"
    )


def append_rows(path: Path, examples: TableExamples, without: set[int]) -> None:
    """Splits that a task cuts out of one file go back into one file, in order."""
    with path.open("a", encoding="utf-8") as out:
        for index in range(len(examples)):
            if index not in without:
                out.write(as_line(examples.row(index), examples.table.row_name(index)) + "\n")


def as_line(row: Mapping[str, Any], place: str) -> str:
    """A row as a line of JSONL; times, which Parquet has, become texts. Raises UserError for what
    JSON has no form of."""
    try:
        text = json.dumps(row, ensure_ascii=False, default=as_text)
        text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"{place} cannot be written as JSON ({error}): leave out what is none, or make it text"
        ) from error
    return text


def as_text(value: Any) -> str:
    """A time or a decimal number as text. Raises TypeError for anything else."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta | UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")
