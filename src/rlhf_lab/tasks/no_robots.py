"""`task=no_robots`: the chat data of arXiv:2410.18252, or chats of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.chat import told
from rlhf_lab.tasks.hub import read_split
from rlhf_lab.tasks.tables import NoSuchFile, RequiredFields, Table, TableExamples
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

ROLES = ("system", "user", "assistant")
REMEDY = "correct or delete the row"


@dataclass(frozen=True)
class NoRobots(limits.Limited, key="task"):
    """Chats written by people: rows have `messages`, a list of {role, content} that ends with the
    assistant's answer."""

    name: str = limits.name("no_robots")
    path: str = limits.option(
        "HuggingFaceH4/no_robots",
        about="A folder with train and test as .jsonl or .parquet, one such file, or a hub name.",
    )
    validation_size: int = fields.held_out(500)
    drop_long: bool = limits.option(
        True,
        about="Whether prompts of more than max_prompt_tokens are left out instead of refused.",
        source="arXiv:2410.18252",
    )
    chat_template: str = limits.option(
        "", about="File with the Jinja template of prompts; empty takes the tokenizer's own."
    )
    max_prompt_tokens: int = fields.prompt_tokens(512, source="arXiv:2410.18252")
    max_response_tokens: int = fields.response_tokens(1024, source="arXiv:2410.18252")
    has_rule: ClassVar[bool] = False

    def examples(self, split: Split) -> Sequence[Example]:
        """All rows of a split; validation is the end of the training rows."""
        if split is Split.test:
            if Path(self.path).is_file():
                raise NoSuchFile(
                    f"task.path={self.path} is one file, which holds no test split: pass a folder "
                    "with train and test, or eval.split=validation"
                )
            return TableExamples(load(self.path, "test"), "test", example)
        table = load(self.path, "train")
        kept = len(table) - self.validation_size
        if kept < 1:
            raise UserError(
                f"task.validation_size={self.validation_size}, but {self.path} has only "
                f"{len(table)} training rows: lower it"
            )
        if split is Split.train:
            return TableExamples(table, "train", example, last=kept)
        return TableExamples(table, "train", example, first=kept)

    def tokenizer(self) -> Any | None:
        """None: the model brings its own."""
        return None

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """Refused: another model judges this task."""
        raise UserError(
            "task=no_robots has no rule of its own: pass reward@judge=endpoint judge.model=<name>, "
            "or reward@judge=reward_model judge.path=<hub name or folder>"
        )


@functools.cache
def load(path: str, split: str) -> Table:
    """Rows of one file or hub split, each of them looked at once."""
    demand = RequiredFields((), columns=("messages",), remedy=REMEDY)
    table = read_split(path, split, {"split": split}, demand)
    for index, row in enumerate(table):
        example(row, f"{table.source}:{table.number(index)}")
    return table


def example(row: Mapping[str, Any], uid: str) -> Example:
    """One row: its last message is the reference, all before it are the prompt."""
    messages = row.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or len(messages) < 2:
        raise UserError(
            f"{uid} has no field 'messages' with a list of two messages or more (fields found: "
            f"{', '.join(sorted(row))}): {REMEDY}"
        )
    turns = [turn(message, f"{uid}, message {n}") for n, message in enumerate(messages, start=1)]
    *before, (last, answer) = turns
    if last != "assistant" or before[-1][0] != "user":
        raise UserError(
            f"{uid} ends with messages of {before[-1][0]} and {last}, not of user and assistant: "
            f"{REMEDY}"
        )
    if any(role == "system" for role, _ in turns[1:]):
        raise UserError(f"{uid} has a system message that is not the first: {REMEDY}")
    return Example(uid, told(before), answer.strip(), messages=tuple(before))


def turn(message: Any, place: str) -> tuple[str, str]:
    """One message as role and text."""
    if not isinstance(message, Mapping):
        raise UserError(f"{place} is no object with role and content: {REMEDY}")
    role, text = message.get("role"), message.get("content")
    if role not in ROLES:
        raise UserError(f"{place} has role {role!r}, none of {', '.join(ROLES)}: {REMEDY}")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{place} has no text in field 'content': {REMEDY}")
    return role, text
