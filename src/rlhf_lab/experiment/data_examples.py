"""The first prompts of a task as the model reads them, with what rewards see besides."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_lab.experiment.config import Config
from rlhf_lab.experiment.data_copy import Splits
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Limits, first_rows, row_name
from rlhf_lab.tasks.prompts import fit
from rlhf_lab.types.samples import Example, Split

# Of a reference or of hidden values: what a line is for.
MOST_CHARACTERS = 300


def show_examples(config: Config, console: Console, splits: Splits, limits: Limits) -> None:
    """Print the first prompts of train."""
    examples, num = splits[Split.train], config.data.examples
    for index, example in first_rows(examples, num) if num else ():
        console.print("\n" + "\n".join(lines_of(example, row_name(examples, index), limits)))


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
