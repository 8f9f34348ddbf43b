"""Examples of the rows that a task makes, and a copy of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from rlhf_lab.experiment.config.config import Config
from rlhf_lab.runs.disk import atomic_folder
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Limits, Overlap, SplitAudit, first_rows, row_name
from rlhf_lab.tasks.prompts import fit
from rlhf_lab.tasks.tables import TableExamples
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Prompt, Split
from rlhf_lab.types.text_frame import TextFrame

Splits = Mapping[Split, Sequence[Example]]
# Of a reference or of hidden values: what a line is for.
MOST_CHARACTERS = 300
SHOWN_TOKENS = 4


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


def show_examples(config: Config, console: Console, splits: Splits, limits: Limits) -> None:
    """Print the first prompts of train."""
    examples, num = splits[Split.train], config.data.examples
    for index, example in first_rows(examples, num) if num else ():
        console.print("\n" + "\n".join(lines_of(example, row_name(examples, index), limits)))


def show_frame(console: Console, tokenizer: Any, first: Prompt) -> None:
    """Print what the model reads around texts: the start of rows, the end tokens, and the ends of
    the first prompt."""
    console.print("\n" + "\n".join(frame_lines(tokenizer, first)))


def frame_lines(tokenizer: Any, first: Prompt) -> Iterator[str]:
    """The text frame of a tokenizer, in lines."""
    frame = TextFrame(tokenizer)

    def named(tokens: Sequence[int]) -> str:
        pieces = tokenizer.convert_ids_to_tokens(list(tokens))
        pairs = zip(pieces, tokens, strict=True)
        return ", ".join(f"{piece!r} = {token}" for piece, token in pairs) or "none"

    bos = sum(token == tokenizer.bos_token_id for token in first.tokens)
    yield "text frame of the model:"
    yield f"  in front of plain text: {named(frame.start)}"
    yield f"  end tokens: {named(frame.ends)}"
    yield f"  first tokens of a prompt: {named(first.tokens[:SHOWN_TOKENS])}"
    yield f"  last tokens of a prompt: {named(first.tokens[-SHOWN_TOKENS:])}"
    yield f"  BOS tokens in it: {bos if tokenizer.bos_token_id is not None else 'there is none'}"
    ordinary = [end for end in frame.ends if end not in special_tokens(tokenizer)]
    if ordinary:
        yield (
            f"  warning: {named(ordinary)} ends answers by eos_token_id of the generation config, "
            "and is no special token of the tokenizer: correct it there if text should have it"
        )


def special_tokens(tokenizer: Any) -> set[int]:
    """Special tokens, which have no text."""
    return {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}


def lines_of(example: Example, name: str, limits: Limits) -> Iterator[str]:
    """The exact text of a prompt, each line after a bar; then its reference and hidden values."""
    note = "as plain text" if example.messages else ""
    if limits.read is not None:
        example, tokens = fit(example, limits.read, limits.shorten, limits.prompt)
        note = f"{len(tokens):,} tokens"
    yield f"the model reads of {name}{f' ({note})' if note else ''}:"
    yield from (f"  | {line}" for line in limits.render(example).split("\n"))
    if example.reference:
        yield f"  reference: {shortened(example.reference)}"
    if example.hidden:
        yield f"  hidden from it: {shortened(dict(example.hidden))}"


def shortened(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."
