"""Sets of preference pairs: files, folders and hub datasets, under their own names of columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlhf_lab.tasks.hub import SUFFIXES, read_split
from rlhf_lab.tasks.pairs import SIDES, pair_example
from rlhf_lab.tasks.tables import NoSuchFile, RequiredFields, Row
from rlhf_lab.types.errors import UserError

TRAIN, HELD_OUT = "train", "held_out"
# Published sets end answers in it (arXiv:2403.17031, detail 3); the end token itself is added when
# the text is encoded.
END = "<|endoftext|>"


@dataclass(frozen=True)
class PairColumns:
    """The columns of prompt and answers, and the split of the pairs that are held out."""

    prompt: str = "prompt"
    chosen: str = "chosen"
    rejected: str = "rejected"
    held_out: str = HELD_OUT

    def renamed(self, row: Row) -> Row:
        """The row with the fields prompt, chosen and rejected."""
        names = {self.chosen: "chosen", self.rejected: "rejected", self.prompt: "prompt"}
        found = {names.get(name, name): value for name, value in row.items() if name not in SIDES}
        found |= {names[name]: row[name] for name in names}
        return found | {side: found[side].removesuffix(END) for side in SIDES}


@dataclass(frozen=True)
class GivenPairs:
    """A user's pairs, and how many there are of them to learn from and to judge by."""

    train: list[Row]
    held_out: list[Row]

    def parts(self) -> list[tuple[str, list[Row]]]:
        """(name of the file, rows)."""
        return [(TRAIN, self.train), (HELD_OUT, self.held_out)]


def given_pairs(
    path: str, held_out_pairs: int, key: str, columns: PairColumns | None = None
) -> GivenPairs:
    """The pairs of a folder or hub dataset with both parts, or of a file whose end is held out.

    key: the option that names the path. Raises UserError for rows that hold no preference.
    """
    if not path:
        raise UserError(
            f"{key}='': pass {key}=<JSON lines with prompt, chosen and rejected, or a hub dataset>"
        )
    columns = columns or PairColumns()
    place = Path(path)
    if place.is_dir():
        for name in (TRAIN, columns.held_out):
            require_part(place, name, key)
    elif place.is_file() or place.suffix in SUFFIXES:
        rows = rows_of(path, "", key, columns)
        if len(rows) <= held_out_pairs:
            raise UserError(
                f"labels.held_out_pairs={held_out_pairs}, but {path} has only {len(rows)} pairs: "
                "lower it"
            )
        return GivenPairs(rows[:-held_out_pairs], rows[-held_out_pairs:])
    return GivenPairs(*(rows_of(path, name, key, columns) for name in (TRAIN, columns.held_out)))


def require_part(folder: Path, name: str, key: str) -> None:
    """Refuse a folder without the file of a part."""
    if not any((folder / f"{name}{suffix}").is_file() for suffix in SUFFIXES):
        raise NoSuchFile(
            f"{key}={folder} has no {name}.jsonl: pass a folder with {TRAIN}.jsonl and "
            f"{HELD_OUT}.jsonl, or .parquet, or one file"
        )


def rows_of(path: str, part: str, key: str, columns: PairColumns) -> list[Row]:
    """The checked rows of a part, with the fields prompt, chosen and rejected. part: name of the
    file in a folder, or of the split on the hub."""
    names = (columns.prompt, columns.chosen, columns.rejected)
    remedy = "add it, or name the column by labels.prompt_column, chosen_column, rejected_column"
    required = RequiredFields(names, (columns.prompt,), key, remedy)
    table = read_split(path, part, {"split": part}, required)
    rows = [columns.renamed(row) for row in table]
    for index, row in enumerate(rows):
        pair_example(row, table.row_name(index), "")
    return rows
