"""The first prompts of a task as the model reads them, with what rewards see besides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.data_copy import Splits
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Limits, first_rows, row_name
from rlhf_lab.tasks.prompts import fit
from rlhf_lab.types.samples import Example, Prompt, Split
from rlhf_lab.types.text_frame import TextFrame

# Of a reference or of hidden values: what a line is for.
MOST_CHARACTERS = 300
SHOWN_TOKENS = 4


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
    """Tokens that stand for no text of their own."""
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
