"""`task=prompts`: prompts of the user's own, a row each, from a file, a folder or the hub.

Rows are in the split of their file, or in that which a column or a hash of the prompt names.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.byte_tokenizer import byte_tokenizer
from rlhf_lab.tasks.chat import AUTO, CHAT
from rlhf_lab.tasks.hub import digest_of, split_files
from rlhf_lab.tasks.prompt_columns import Columns, field_of, load, usual_columns
from rlhf_lab.tasks.tables import NoSuchFile, Table, TableExamples
from rlhf_lab.tasks.task_options import TaskOptions, require_placeholder
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Split

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Naming:
    """The names of the splits in the data."""

    train: str
    validation: str
    test: str

    def of(self, split: Split) -> str:
        name: str = getattr(self, split.value)
        return name


@dataclass(frozen=True)
class Hashing:
    """The shares of the rows that are held out. seed: keys the hash."""

    validation_share: float
    test_share: float
    seed: int = 0

    def split_of(self, prompt: str) -> Split:
        """The split of a prompt: a function of its text alone. A larger share takes rows from train
        and never moves any between validation and test."""
        place = stable_hash(self.seed, "split of a prompt", prompt) / 2**64
        if place < self.test_share:
            return Split.test
        # Validation is at the other end, so that its rows do not depend on test_share.
        return Split.validation if place >= 1 - self.validation_share else Split.train


@dataclass(frozen=True)
class Rows:
    """The numbers of each split's rows in a table. values: of the column that decides, if one does,
    with their counts."""

    source: str
    by_split: Mapping[Split, Sequence[int]]
    share: Mapping[Split, float]
    column: str = ""
    naming: Naming | None = None
    values: Mapping[str, int] | None = None

    def why_empty(self, split: Split) -> str:
        """What to do about a split without rows."""
        if self.naming is None:
            num = sum(len(rows) for rows in self.by_split.values())
            return (
                f"task.{split.value}_share={self.share[split]} puts none of the {num} rows of "
                f"{self.source} into {split.value}: raise it"
            )
        values = ", ".join(repr(value) for value in sorted(self.values or ()))
        return (
            f"task.{split.value}_split={self.naming.of(split)}: column {self.column!r} of "
            f"{self.source} has it in no row (values found: {values}): name one of them"
        )

    def notes(self) -> list[str]:
        """Values of the column that name no split."""
        known = {self.naming.of(split) for split in Split} if self.naming else set()
        return [
            f"{count:,} rows with {self.column}={value} are in no split"
            for value, count in sorted((self.values or {}).items())
            if value not in known
        ]


@functools.cache
def by_hash(table: Table, columns: Columns, hashing: Hashing) -> Rows:
    """Rows by a hash of their prompts as the data has them, whatever the template: equal prompts
    fall into one split, and further rows move none."""
    found: dict[Split, list[int]] = {split: [] for split in Split}
    for number, row in enumerate(table):
        found[hashing.split_of(columns.key(row, table.uid(number)))].append(number)
    shares = {Split.validation: hashing.validation_share, Split.test: hashing.test_share}
    shares[Split.train] = 1 - sum(shares.values())
    return Rows(table.source, found, shares)


@functools.cache
def by_column(table: Table, column: str, naming: Naming) -> Rows:
    """Rows by the values of a column; those with another value are in no split."""
    found: dict[Split, list[int]] = {split: [] for split in Split}
    splits = {naming.of(split): split for split in Split}
    values: Counter[str] = Counter()
    for number, row in enumerate(table):
        value = str(field_of(row, column, table.uid(number), "task.split_column"))
        values[value] += 1
        if split := splits.get(value):
            found[split].append(number)
    return Rows(table.source, found, {}, column, naming, values)


class SplitBy(StrEnum):
    """file: every split has a file or hub split. column: a column names the split of a row. hash: a
    hash of the prompt decides. auto: file for a folder that has a validation file, else hash."""

    auto = "auto"
    file = "file"
    column = "column"
    hash = "hash"


@dataclass(frozen=True)
class OwnPrompts(TaskOptions):
    """Prompts of your own, from JSONL, Parquet or the hub: a column of texts or of messages, and if
    wanted columns of references and of what only the reward sees (docs/tasks.md)."""

    name: str = limits.name("prompts")
    path: str = limits.option(
        "",
        about=(
            "A .jsonl or .parquet file, a folder with train and if wanted other splits as such "
            "files, or a hub name."
        ),
    )
    hub_config: str = limits.option("", about="Configuration of a hub dataset; empty for none.")
    prompt: str = limits.option(
        "prompt",
        about=(
            "Column of the prompts: texts, or lists of messages {role, content}; a dot leads into "
            "an object, as in meta.question. Rows without prompt may have messages, or chosen and "
            "rejected, which begin with it."
        ),
    )
    reference: str = limits.option(
        "",
        about=(
            "Column of the reference answers, texts or messages; the prompt's own if its messages "
            "end with the answer; empty for completion, the end of messages, or chosen, where "
            "the rows have one; none for a task without references."
        ),
    )
    hidden: list[str] = limits.collection(
        list, about="Columns that rewards and judges see and the policy does not, as `hidden`."
    )
    template: str = limits.option(
        "",
        about=(
            "Text around a prompt, with {prompt} in it; empty takes the prompt as it is. With a "
            "template, messages become plain text."
        ),
    )
    chat: str = limits.option(
        AUTO,
        about=(
            "Whether a plain prompt is a user's message in the model's chat template: true, false, "
            "or auto, which asks whether the tokenizer has a template."
        ),
    )
    chat_template: str = limits.option(
        "", about="File with the Jinja template of prompts; empty takes the tokenizer's own."
    )
    chat_arguments: dict[str, Any] = fields.chat_arguments()
    split_by: SplitBy = limits.option(
        SplitBy.auto,
        about=(
            "What decides the split of a row: its file, the column split_column or a hash of the "
            "prompt; auto is file for a folder with a validation file, else hash."
        ),
    )
    split_column: str = limits.option("split", about="Column of the split, with split_by=column.")
    train_split: str = limits.option(
        "train", about="Name of the train split: of its file, hub split, or value in split_column."
    )
    validation_split: str = limits.option(
        "validation", about="Name of the validation split, as train_split."
    )
    test_split: str = limits.option("test", about="Name of the test split, as train_split.")
    validation_share: float = limits.share(
        0.1, about="Share of the rows that split_by=hash holds out as the validation split."
    )
    test_share: float = limits.share(
        0.0,
        about=(
            "Share of the rows that split_by=hash holds out as the test split; 0 takes the file or "
            "hub split test_split."
        ),
    )
    split_seed: int = limits.seed(0, about="Keys the hash of split_by=hash.")
    drop_long: bool = limits.option(
        False,
        about="Whether prompts of more than max_prompt_tokens are left out instead of refused.",
    )
    max_prompt_tokens: int = fields.prompt_tokens(512)
    max_response_tokens: int = fields.response_tokens(128)
    other_references: ClassVar[str] = "task.reference=<column of reference answers>"
    other_judges: ClassVar[str] = (
        "reward@judge=function judge.path=MODULE.FUNCTION, or reward@judge=endpoint "
        "judge.model=<name> judge.style=rating"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "chat", str(self.chat).lower())
        if self.chat not in CHAT:
            raise UserError(f"task.chat={self.chat}: choose one of {', '.join(CHAT)}")
        if self.template:
            require_placeholder(self.template, "{prompt}")
        if not self.prompt:
            raise UserError("task.prompt='': name the column of the prompts")
        if len({self.train_split, self.validation_split, self.test_split}) < 3:
            raise UserError(
                f"task.train_split={self.train_split}, task.validation_split="
                f"{self.validation_split}, task.test_split={self.test_split}: give each split a "
                "name of its own"
            )
        if self.validation_share + self.test_share >= 1:
            raise UserError(
                f"task.validation_share={self.validation_share} and task.test_share="
                f"{self.test_share} leave nothing to train on: lower one of them"
            )

    def require_usable(self, key: str) -> None:
        if not self.path:
            raise UserError(
                f"{key}.path='': pass {key}.path=<a .jsonl or .parquet file, a folder with "
                "train.jsonl in it, or a hub name>"
            )

    @property
    def has_references(self) -> bool:
        """Whether there is a column of reference answers."""
        return bool(self.columns.reference)

    @property
    def columns(self) -> Columns:
        """The columns that options name, and others by their usual names."""
        hidden = tuple(self.hidden)
        named = Columns(self.prompt, self.reference, hidden, self.template, self.chat == "true")
        if not self.path:
            return named
        return usual_columns(self.path, self.train_split, self.hub_config, named)

    @property
    def naming(self) -> Naming:
        return Naming(self.train_split, self.validation_split, self.test_split)

    def uses(self) -> dict[str, str]:
        columns = self.columns
        names = {columns.prompt: ["prompt"]}
        others = [(columns.reference, "reference"), *((name, "hidden") for name in self.hidden)]
        if self.split_by is SplitBy.column:
            others.append((self.split_column, "split"))
        for name, use in others:
            if name:
                names.setdefault(name, []).append(use)
        return {name: ", ".join(uses) for name, uses in names.items()}

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """One token a byte, for models trained from random weights."""
        return byte_tokenizer()

    def examples(self, split: Split) -> Sequence[Example]:
        """All rows of a split, in the order of their table."""
        self.require_usable("task")
        names, by = self.naming, self.split_by_what
        has_own = split is Split.test and by is SplitBy.hash and not self.test_share
        if by is SplitBy.file or has_own:
            self._refuse_one_file(split)
            name = names.of(split)
            return TableExamples(self._table(name), name, self.columns.example)
        rows = self._rows(by)
        if not rows.by_split[split]:
            raise NoSuchFile(rows.why_empty(split))
        table, numbers = self._table(self.train_split), rows.by_split[split]
        return TableExamples(table, self.train_split, self.columns.example, rows=numbers)

    @property
    def split_by_what(self) -> SplitBy:
        """What decides the split of a row, without auto."""
        if self.split_by is not SplitBy.auto:
            return self.split_by
        files = split_files(Path(self.path), self.validation_split, self.hub_config)
        return SplitBy.file if files else SplitBy.hash

    def content(self) -> dict[str, str]:
        """A digest of each local file that rows may be read from."""
        names = (self.train_split, self.validation_split, self.test_split)
        folder = Path(self.path)
        files = [file for name in names for file in split_files(folder, name, self.hub_config)]
        return {path.name: digest_of(path) for path in (folder, *files) if path.is_file()}

    def notes(self) -> list[str]:
        """What decides the splits, and the rows that are in none."""
        by = self.split_by_what
        rest = self._rows(by).notes() if by is SplitBy.column else []
        return [f"splits by {by.value} (task.split_by={self.split_by.value})", *rest]

    def _table(self, name: str) -> Table:
        more = (self.split_column,) if self.split_by is SplitBy.column else ()
        return load(self.path, name, self.hub_config, self.columns, more)

    def _rows(self, by: SplitBy) -> Rows:
        table = self._table(self.train_split)
        if by is SplitBy.column:
            return by_column(table, self.split_column, self.naming)
        hashing = Hashing(self.validation_share, self.test_share, self.split_seed)
        return by_hash(table, self.columns, hashing)

    def _refuse_one_file(self, split: Split) -> None:
        if not Path(self.path).is_file():
            return
        is_test = split is Split.test
        remedy = "task.test_share=0.1, eval.split=validation" if is_test else "task.split_by=hash"
        raise NoSuchFile(
            f"task.path={self.path} is one file, which holds no {split.value} split of its own: "
            f"pass {remedy}, or a folder with a file for each split"
        )
