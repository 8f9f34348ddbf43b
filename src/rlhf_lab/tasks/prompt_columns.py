"""The columns of `task=prompts`: a row becomes an example, or is refused with its line."""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlhf_lab.tasks.chat import REMEDY, Turns, as_text, messages_of, parsed, plain_text
from rlhf_lab.tasks.hub import first_row, read_split
from rlhf_lab.tasks.pairs import SIDES, PairColumns
from rlhf_lab.tasks.tables import NoSuchFile, RequiredFields, Row, Table, check_rows
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

# task.reference for rows without references, whatever columns they have.
NONE = "none"
# Names of columns in TRL's forms of data sets.
PROMPT, MESSAGES, COMPLETION = "prompt", "messages", "completion"
NAMING = "name the column by task.prompt, task.reference or task.hidden"


@dataclass(frozen=True)
class Columns:
    """Which columns hold what. See the options of the same names. is_pair: prompt and reference are
    those of a preference pair, of which the chosen answer is the reference."""

    prompt: str
    reference: str = ""
    hidden: tuple[str, ...] = ()
    template: str = ""
    is_chat: bool = False
    is_pair: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        sources = [*SIDES] if self.is_pair else [self.prompt, self.reference]
        every = (*sources, *self.hidden)
        return tuple(dict.fromkeys(name for name in every if name))

    def key(self, row: Row, uid: str) -> str:
        """The prompt as the data has it, as one text: equal prompts have equal keys."""
        if self.is_pair and not isinstance(row.get(self.prompt), str):
            pair = PairColumns(self.prompt).pair(row, uid)
            return json.dumps(pair.messages) if pair.messages else pair.prompt
        value = field_of(row, self.prompt, uid, "task.prompt")
        return value if isinstance(value, str) else json.dumps(self._prompt_messages(value, uid)[0])

    def with_usual(self, row: Row) -> Columns:
        """These columns, and of those that no option names the usual ones that a row has."""
        if self.reference == NONE and NONE not in row:
            return replace(self, reference="")
        if self.reference:
            return self
        is_usual = self.prompt == PROMPT
        if is_usual and all(side in row for side in SIDES):
            return replace(self, reference=SIDES[0], is_pair=True)
        if is_usual and PROMPT not in row and MESSAGES in row:
            turns = parsed(row[MESSAGES])
            last = turns[-1] if isinstance(turns, list) and turns else None
            is_answered = isinstance(last, Mapping) and last.get("role") == "assistant"
            return replace(self, prompt=MESSAGES, reference=MESSAGES if is_answered else "")
        # With a column that marks which completions are wanted, not all of them are references.
        if COMPLETION in row and not isinstance(row.get("label"), bool):
            return replace(self, reference=COMPLETION)
        return self

    def example(self, row: Row, uid: str) -> Example:
        """The example of a row. Raises UserError, with its place and what to do, if it has none."""
        prompt, reference = self._read(row, uid)
        hidden = {name: field_of(row, name, uid, "task.hidden") for name in self.hidden}
        text = prompt if isinstance(prompt, str) else plain_text(prompt)
        shown = self.template.replace("{prompt}", text) if self.template else text
        if isinstance(prompt, str):
            messages: Turns = (("user", shown),) if self.is_chat else ()
            return Example(uid, shown, reference, hidden, messages)
        if self.template:
            return Example(uid, shown, reference, hidden)
        return Example(uid, as_text(prompt), reference, hidden, prompt)

    def _read(self, row: Row, uid: str) -> tuple[str | Turns, str]:
        """The prompt of a row, a text or messages, and the reference answer."""
        if self.is_pair:
            pair = PairColumns(self.prompt).pair(row, uid)
            if not pair.chosen.strip():
                raise UserError(f"{uid} has an empty field 'chosen': {REMEDY}")
            return pair.messages or pair.prompt, pair.chosen
        value = parsed(field_of(row, self.prompt, uid, "task.prompt"))
        if isinstance(value, str):
            if not value.strip():
                raise UserError(f"{uid} has an empty prompt (task.prompt={self.prompt}): {REMEDY}")
            return value, self._reference(row, uid)
        turns, answer = self._prompt_messages(value, uid)
        return turns, answer if self._is_answered else self._reference(row, uid)

    @property
    def _is_answered(self) -> bool:
        """Whether the messages of a prompt end with its reference."""
        return self.reference == self.prompt

    def _prompt_messages(self, value: Any, uid: str) -> tuple[Turns, str]:
        """The messages of a prompt up to the user's last, and the answer if they end with one."""
        turns = messages_of(value, f"{uid} has a prompt (task.prompt={self.prompt})", uid)
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
        value = parsed(field_of(row, self.reference, uid, "task.reference"))
        name = f"{uid} has a reference (task.reference={self.reference})"
        if not isinstance(value, str):
            role, value = messages_of(value, name, uid)[-1]
            if role != "assistant":
                raise UserError(f"{name} whose last message is of {role}: {REMEDY}")
        if not value.strip():
            raise UserError(f"{name} that is empty: {REMEDY}, or leave task.reference out")
        text: str = value
        return text


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


def usual_columns(path: str, name: str, hub_config: str, named: Columns) -> Columns:
    """The columns of a file, or of file or hub split `name`, by its first row. named: by options,
    which are all that is known of rows that are not on this machine: their reader reports it.
    """
    if named.reference not in ("", NONE):
        return named
    return found_columns(path, name, hub_config, named, Path(path).exists())


@functools.cache
def found_columns(path: str, name: str, hub_config: str, named: Columns, is_local: bool) -> Columns:
    hub = {"split": name} | ({"name": hub_config} if hub_config else {})
    try:
        return named.with_usual(first_row(path, name, hub, RequiredFields((), remedy=NAMING)))
    except NoSuchFile:
        return named.with_usual({})
