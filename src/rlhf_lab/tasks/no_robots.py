"""`task=no_robots`: the chat data of arXiv:2410.18252, or chats of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.chat import REMEDY, as_text, messages_of, parsed
from rlhf_lab.tasks.hub import read_split
from rlhf_lab.tasks.tables import NoSuchFile, RequiredFields, Table, check_rows, split_examples
from rlhf_lab.tasks.task_options import TaskOptions
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split


@dataclass(frozen=True)
class NoRobots(TaskOptions):
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
    chat_arguments: dict[str, Any] = fields.chat_arguments()
    max_prompt_tokens: int = fields.prompt_tokens(512, source="arXiv:2410.18252")
    max_response_tokens: int = fields.response_tokens(1024, source="arXiv:2410.18252")
    other_judges: ClassVar[str] = (
        "reward@judge=endpoint judge.model=<name>, or reward@judge=reward_model judge.path=<hub "
        "name or folder>"
    )

    def examples(self, split: Split) -> Sequence[Example]:
        """All rows of a split; validation is the end of the training rows."""
        if split is Split.test and Path(self.path).is_file():
            raise NoSuchFile(
                f"task.path={self.path} is one file, which holds no test split: pass a folder "
                "with train and test, or eval.split=validation"
            )
        load_file = functools.partial(load, self.path)
        return split_examples(split, load_file, example, self.validation_size, self.path)


@functools.cache
def load(path: str, split: str) -> Table:
    """Checked rows of one file or hub split."""
    required = RequiredFields((), columns=("messages",), remedy=REMEDY)
    return check_rows(read_split(path, split, {"split": split}, required), example)


def example(row: Mapping[str, Any], uid: str) -> Example:
    """One row: its last message is the reference answer, the messages before it are the prompt."""
    messages = parsed(row.get("messages"))
    if not isinstance(messages, Sequence) or isinstance(messages, str) or len(messages) < 2:
        raise UserError(
            f"{uid} has no field 'messages' with a list of two messages or more (fields found: "
            f"{', '.join(sorted(row))}): {REMEDY}"
        )
    *before, (last, answer) = messages_of(messages, f"{uid} has messages", uid)
    if last != "assistant" or before[-1][0] != "user":
        raise UserError(
            f"{uid} ends with messages of {before[-1][0]} and {last}, not of user and assistant: "
            f"{REMEDY}"
        )
    return Example(uid, as_text(before), answer.strip(), messages=tuple(before))
