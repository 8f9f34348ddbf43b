"""The columns of `task=prompts`: a row becomes an example, or is refused with its line."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_lab.tasks.chat import REMEDY, as_text, turn
from rlhf_lab.tasks.hub import read_split
from rlhf_lab.tasks.tables import RequiredFields, Row, Table, check_rows
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

Turns = tuple[tuple[str, str], ...]
NAMING = "name the column by task.prompt, task.reference or task.hidden"


@dataclass(frozen=True)
class Columns:
    """Which columns hold what. See the options of the same names."""

    prompt: str
    reference: str = ""
    hidden: tuple[str, ...] = ()
    template: str = ""
    is_chat: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that a row must have."""
        every = (self.prompt, self.reference, *self.hidden)
        return tuple(dict.fromkeys(name for name in every if name))

    def key(self, row: Row, uid: str) -> str:
        """The prompt as the data has it, as one text: equal prompts have equal keys."""
        value = field_of(row, self.prompt, uid, "task.prompt")
        return value if isinstance(value, str) else json.dumps(self._asked(value, uid)[0])

    def example(self, row: Row, uid: str) -> Example:
        """The example of a row. Raises UserError, with its place and what to do, if it has none."""
        value = field_of(row, self.prompt, uid, "task.prompt")
        hidden = {name: field_of(row, name, uid, "task.hidden") for name in self.hidden}
        if isinstance(value, str):
            if not value.strip():
                raise UserError(f"{uid} has an empty prompt (task.prompt={self.prompt}): {REMEDY}")
            prompt = self.template.replace("{prompt}", value) if self.template else value
            messages: Turns = (("user", prompt),) if self.is_chat else ()
            return Example(uid, prompt, self._reference(row, uid), hidden, messages)
        turns, answer = self._asked(value, uid)
        reference = answer if self._is_answered else self._reference(row, uid)
        if self.template:
            prompt = self.template.replace("{prompt}", plain_text(turns))
            return Example(uid, prompt, reference, hidden)
        return Example(uid, as_text(turns), reference, hidden, turns)

    @property
    def _is_answered(self) -> bool:
        """Whether the messages of a prompt end with its reference."""
        return self.reference == self.prompt

    def _asked(self, value: Any, uid: str) -> tuple[Turns, str]:
        """The messages of a prompt up to the user's last, and the answer if they end with one."""
        turns = turns_of(value, f"{uid} has a prompt (task.prompt={self.prompt})", uid)
        answer = ""
        if self._is_answered:
            *before, (role, answer) = turns
            if role != "assistant" or not before:
                raise UserError(
                    f"{uid} has messages that do not end with an answer (task.reference="
                    f"{self.reference}): {REMEDY}, or leave task.reference out"
                )
            turns = tuple(before)
        if turns[-1][0] != "user":
            raise UserError(
                f"{uid} has a prompt whose last message is of {turns[-1][0]}, not of the user "
                f"(task.prompt={self.prompt}): pass task.reference={self.prompt} if it is the "
                f"reference answer, or {REMEDY}"
            )
        return turns, answer.strip()

    def _reference(self, row: Row, uid: str) -> str:
        """The reference answer; '' for a task without."""
        if not self.reference:
            return ""
        value = field_of(row, self.reference, uid, "task.reference")
        name = f"{uid} has a reference (task.reference={self.reference})"
        if not isinstance(value, str):
            role, value = turns_of(value, name, uid)[-1]
            if role != "assistant":
                raise UserError(f"{name} whose last message is of {role}: {REMEDY}")
        if not value.strip():
            raise UserError(f"{name} that is empty: {REMEDY}, or leave task.reference out")
        text: str = value
        return text


def turns_of(value: Any, name: str, uid: str) -> Turns:
    """A list of messages. name: of the value, with its row."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        kind = "nothing" if value in (None, [], "") else type(value).__name__
        raise UserError(
            f"{name} that is {kind}, neither a text nor a list of messages {{role, content}}: "
            f"{REMEDY}, or name another column"
        )
    turns = tuple(turn(message, f"{uid}, message {n}") for n, message in enumerate(value, start=1))
    if any(role == "system" for role, _ in turns[1:]):
        raise UserError(f"{uid} has a system message that is not the first: {REMEDY}")
    return turns


def plain_text(turns: Turns) -> str:
    """Messages as a text for a template: a single one without its role."""
    return turns[0][1] if len(turns) == 1 else as_text(turns).removesuffix("\n\nassistant: ")


def field_of(row: Row, name: str, uid: str, option: str) -> Any:
    """The value of a column, or the one that a dotted name leads to. option: what names it."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise UserError(
                f"{uid} has no field {name!r} ({option}={name}; fields found: "
                f"{', '.join(sorted(row))}){meant(name, row)}: add it, or {NAMING}"
            )
    return value


def meant(name: str, known: Mapping[str, Any]) -> str:
    """`, did you mean X`, where a name is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]!r}" if near else ""


@functools.cache
def load(path: str, name: str, hub_config: str, columns: Columns, more: tuple[str, ...]) -> Table:
    """Checked rows of a file, of file `name` in a folder, or of hub split `name`. more: columns
    that are needed besides."""
    needed = tuple(dict.fromkeys(column.partition(".")[0] for column in (*columns.names, *more)))
    required = RequiredFields((), columns=needed, remedy=NAMING)
    hub = {"split": name} | ({"name": hub_config} if hub_config else {})
    return check_rows(read_split(path, name, hub, required), columns.example)
