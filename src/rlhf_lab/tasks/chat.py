"""Chats as plain text for judges, and as tokens in a model's own chat template."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

Messages = Sequence[tuple[str, str]]
ROLES = ("system", "user", "assistant")
REMEDY = "correct or delete the row"
# The answer by which a template is tested.
ANSWER = "An answer."


def as_text(messages: Messages) -> str:
    """A chat as plain text, up to the start of the next answer."""
    turns = "".join(f"{role}: {content}\n\n" for role, content in messages)
    return f"{turns}assistant: "


def turn(message: Any, name: str) -> tuple[str, str]:
    """Role and text of a message. Raises UserError, with its name, if it has none."""
    if not isinstance(message, Mapping):
        raise UserError(f"{name} is no object with role and content: {REMEDY}")
    role, text = message.get("role"), message.get("content")
    if role not in ROLES:
        raise UserError(f"{name} has role {role!r}, none of {', '.join(ROLES)}: {REMEDY}")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{name} has no text in field 'content': {REMEDY}")
    return role, text


def text(tokenizer: Any, template: str, example: Example) -> str:
    """The text that a model reads: the prompt's messages in the template, or its plain text.

    template: a file, or empty for the tokenizer's own.
    """
    if not example.messages:
        return example.prompt
    return rendered(tokenizer, template, example, example.messages, is_open=True)


def encode(tokenizer: Any, template: str, example: Example) -> list[int]:
    """The tokens of `text`."""
    whole = text(tokenizer, template, example)
    return list(tokenizer(whole, add_special_tokens=False)["input_ids"])


def check_end(tokenizer: Any, template: str, example: Example) -> None:
    """Refuse a template whose answers do not end in the tokenizer's end token: a model trained with
    the template would not stop, and one trained on references would learn another end."""
    if not example.messages:
        return
    answered = [*example.messages, ("assistant", ANSWER)]
    whole = rendered(tokenizer, template, example, answered, is_open=False)
    ending = whole.rpartition(ANSWER)[2]
    if not ending.lstrip().startswith(tokenizer.eos_token):
        raise UserError(
            f"the chat template ends an answer with {ending!r}, and the tokenizer's end token is "
            f"{tokenizer.eos_token!r}: answers would not stop; pass task.chat_template=<file of a "
            "template that ends answers with it>, or a model whose tokenizer fits"
        )


def rendered(
    tokenizer: Any, template: str, example: Example, messages: Messages, is_open: bool
) -> str:
    """The text of a chat. is_open: the assistant's turn comes next."""
    chosen = read_template(template) if template else tokenizer.chat_template
    if not chosen:
        raise UserError(
            "the model's tokenizer has no chat template, and the task is a chat: pass "
            "task.chat_template=<file of a Jinja template>, or a model that is made for chats "
            "such as model=smollm2_135m; task=prompts reads messages as plain text with "
            "'task.template=\"{prompt}\"'"
        )
    turns = [{"role": role, "content": content} for role, content in messages]
    try:
        return str(
            tokenizer.apply_chat_template(
                turns,
                chat_template=chosen,
                add_generation_prompt=is_open,
                tokenize=False,
                strftime_now=fixed_day,
            )
        )
    except Exception as error:  # a template may raise anything
        raise UserError(
            f"prompt {example.uid} does not fit the chat template ({error}): correct the row, or "
            "pass task.chat_template=<file of another template>"
        ) from error


def fixed_day(form: str) -> str:
    """The date that templates print: fixed, so that runs do not depend on the day."""
    return datetime(2024, 7, 26).strftime(form)


@functools.cache
def read_template(path: str) -> str:
    """The text of a template file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"task.chat_template={path} cannot be read ({error}): pass a file of a Jinja template"
        ) from error
