"""A copy of a task's splits whose train rows repeat nothing, overlap with no other split, and fit
the prompt limit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from rlhf_lab.experiment.config import Config
from rlhf_lab.runs.disk import atomic_folder
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.audit import Overlap, SplitAudit
from rlhf_lab.tasks.tables import TableExamples
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

Splits = Mapping[Split, Sequence[Example]]


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
