"""Messages of a chat, in the forms in which data sets have them, and as plain text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab.types.errors import UserError

Turns = tuple[tuple[str, str], ...]
ROLES = ("system", "user", "assistant")
REMEDY = "correct or delete the row"


def as_text(messages: Sequence[tuple[str, str]]) -> str:
    """A chat as plain text, up to the start of the next answer."""
    turns = "".join(f"{role}: {content}\n\n" for role, content in messages)
    return f"{turns}assistant: "


def plain_text(turns: Turns) -> str:
    """Messages as a text for a template: a single one without its role."""
    return turns[0][1] if len(turns) == 1 else as_text(turns).removesuffix("\n\nassistant: ")


def parsed(value: Any) -> Any:
    """The messages that a text holds as JSON, as many columns do; any other value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith("[") or '"role"' not in value:
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):  # a plain text that begins like a list
        return value
    is_chat = found and all(isinstance(one, Mapping) and "role" in one for one in found)
    return found if is_chat else value


def turn(message: Any, name: str, is_answer: bool = False) -> tuple[str, str]:
    """Role and text of a message; parts of content that are texts are joined. is_answer: it may be
    blank. Raises UserError, with the message's name, for one that is no such message."""
    if not isinstance(message, Mapping):
        raise UserError(f"{name} is no object with role and content: {REMEDY}")
    role, text = message.get("role"), message.get("content")
    if role not in ROLES:
        raise UserError(f"{name} has role {role!r}, none of {', '.join(ROLES)}: {REMEDY}")
    if isinstance(text, Sequence) and not isinstance(text, str):
        text = "".join(part_text(part, name) for part in text)
    if not isinstance(text, str) or not (is_answer or text.strip()):
        raise UserError(f"{name} has no text in field 'content': {REMEDY}")
    return role, text


def part_text(part: Any, name: str) -> str:
    """The text of one part of a message's content. Raises UserError for a part of another type."""
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if kind != "text" or not isinstance(part.get("text"), str):
        raise UserError(
            f"{name} has a part of type {kind!r} in field 'content', and only parts "
            f"{{type: text, text: ...}} are read: {REMEDY}"
        )
    text: str = part["text"]
    return text


def messages_of(value: Any, name: str, uid: str, may_be_blank: bool = False) -> Turns:
    """A list of messages. name: of the value, with its row. may_be_blank: the last message is an
    answer that may be blank."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        kind = "nothing" if value in (None, [], "") else type(value).__name__
        raise UserError(
            f"{name} that is {kind}, neither a text nor a list of messages {{role, content}}: "
            f"{REMEDY}, or name another column"
        )
    last = len(value) if may_be_blank else 0
    turns = tuple(
        turn(message, f"{uid}, message {number}", number == last)
        for number, message in enumerate(value, start=1)
    )
    if any(role == "system" for role, _ in turns[1:]):
        raise UserError(f"{uid} has a system message that is not the first: {REMEDY}")
    return turns
