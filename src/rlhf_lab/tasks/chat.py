"""Chats: messages in the forms of data sets, as plain text, and as tokens by a chat template."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example
from rlhf_lab.types.text_frame import TextFrame

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


Messages = Sequence[tuple[str, str]]
# The answer by which a template is tested, and the message after it.
ANSWER, NEXT = "An answer.", "A question."
# Arguments of apply_chat_template that are given here.
OWN_ARGUMENTS = (
    *("conversation", "chat_template", "add_generation_prompt", "continue_final_message"),
    *("tokenize", "strftime_now", "padding", "truncation", "max_length", "return_tensors"),
    *("return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs"),
)
# Those that transformers passes on under a name that it makes itself.
MADE_ARGUMENTS = ("tools", "documents")
# task.chat: what a plain prompt is.
AUTO = "auto"
CHAT = (AUTO, "true", "false")
# Characters that a refusal shows on both sides of a place.
SHOWN = 40
# The day that templates print, in the forms that they may ask for.
DAY = datetime(2024, 7, 26)
DATE_FORMS = "%-d %-m %-H %-I %-M %d %m %Y %y %B %b %A %a %H %I %M %S %p %j %F %T %Z %z %%".split()


@dataclass(frozen=True)
class ChatForm:
    """How chats are rendered. template: a file, or empty for the tokenizer's own. arguments: of
    the template, such as enable_thinking. takes_plain: a plain prompt is a user's message where the
    tokenizer has a template."""

    template: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    takes_plain: bool = False


# The tokenizer's own template.
OWN_FORM = ChatForm()


def require_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of templates that are given here already. Raises UserError."""
    for name in arguments:
        if name in OWN_ARGUMENTS:
            raise UserError(
                f"task.chat_arguments.{name}={arguments[name]}: every rendering sets it; leave it "
                "out, and name variables of the chat template alone"
            )


def rendered_messages(tokenizer: Any, form: ChatForm, example: Example) -> Messages:
    """The messages of a prompt that a template renders; none of a prompt that is read as it is."""
    if example.messages or not form.takes_plain:
        return example.messages
    has_template = form.template or tokenizer.chat_template
    return (("user", example.prompt),) if has_template else ()


def text(tokenizer: Any, form: ChatForm, example: Example) -> str:
    """The text that a model reads: the prompt's messages in the template, or its plain text."""
    return messages_and_text(tokenizer, form, example)[1]


def messages_and_text(tokenizer: Any, form: ChatForm, example: Example) -> tuple[Messages, str]:
    """What `rendered_messages` and `text` return."""
    messages = rendered_messages(tokenizer, form, example)
    if not messages:
        return (), example.prompt
    return messages, rendered(tokenizer, form, example, messages, is_open=True)


def encode(tokenizer: Any, form: ChatForm, example: Example) -> list[int]:
    """The tokens of `text`. Special tokens of a chat are those that its template writes."""
    frame = TextFrame(tokenizer)
    messages, whole = messages_and_text(tokenizer, form, example)
    return frame.chat(whole) if messages else frame.row(whole)


def answer_tokens(tokenizer: Any, form: ChatForm, example: Example, answer: str) -> list[int]:
    """The tokens of an answer after the prompt of `encode`, with one end token as the last.

    In a chat they are what the template renders after the prompt: it may write something in front
    of the answer, and more than the end token after it. Raises UserError where the rendered prompt
    is not how the rendered chat begins, and where no end token follows the answer.
    """
    frame = TextFrame(tokenizer)
    messages, prompt = messages_and_text(tokenizer, form, example)
    if not messages:
        return [*frame.inside(answer), frame.end]
    answered = [*messages, ("assistant", answer)]
    whole = rendered(tokenizer, form, example, answered, is_open=False)
    start, tokens = frame.chat(prompt), frame.chat(whole)
    after = whole.removeprefix(prompt)
    if tokens[: len(start)] == start:
        tokens = tokens[len(start) :]
    elif whole.startswith(prompt) and after.startswith(answer):
        # The policy writes after the prompt's tokens: none of them takes in what follows.
        tokens = frame.inside(after)
    else:
        raise not_a_prefix(prompt, whole)
    found = list(frame.cut(tokens))
    if not frame.has_end(found):
        found += end_by_next(tokenizer, form, example, messages)
    if not frame.has_end(found):
        raise no_end(frame, after.rpartition(answer)[2] or after)
    return found


def end_of_answers(tokenizer: Any, form: ChatForm, example: Example) -> int:
    """The token that ends an answer to an example. Raises UserError for a template that writes no
    end token: a model trained with it would not stop."""
    frame, messages = TextFrame(tokenizer), rendered_messages(tokenizer, form, example)
    if not messages:
        return frame.end
    answered = [*messages, ("assistant", ANSWER)]
    whole = rendered(tokenizer, form, example, answered, is_open=False)
    ending = whole.rpartition(ANSWER)[2]
    found = frame.cut(frame.inside(ending))
    if not frame.has_end(found):
        found = end_by_next(tokenizer, form, example, messages)
    if not frame.has_end(found):
        raise no_end(frame, ending)
    return found[-1]


def end_by_next(tokenizer: Any, form: ChatForm, example: Example, messages: Messages) -> list[int]:
    """The end token with which a template begins the message after an answer; [] if it begins with
    none. So GLM ends answers: the marker of the next role is an end token. messages: of the prompt.
    """
    frame = TextFrame(tokenizer)
    followed = [*messages, ("assistant", ANSWER), ("user", NEXT)]
    whole = rendered(tokenizer, form, example, followed, is_open=False)
    between = whole.rpartition(NEXT)[0].rpartition(ANSWER)[2]
    found = frame.cut(frame.inside(between))
    return [found[-1]] if frame.has_end(found) else []


def check_end(tokenizer: Any, form: ChatForm, example: Example) -> None:
    """Refuse a template that ends answers with no end token, and arguments that it does not
    read. Raises UserError."""
    if rendered_messages(tokenizer, form, example):
        end_of_answers(tokenizer, form, example)
        require_read(tokenizer, form)


def require_read(tokenizer: Any, form: ChatForm) -> None:
    """Refuse an argument whose name is nowhere in the template: it would change nothing."""
    template = str(template_of(tokenizer, form))
    for name in form.arguments:
        if name not in MADE_ARGUMENTS and not re.search(rf"\b{re.escape(name)}\b", template):
            raise UserError(
                f"task.chat_arguments.{name}={form.arguments[name]}: the chat template reads no "
                f"{name}; leave it out, or pass task.chat_template=<file of a template that does>"
            )


def not_a_prefix(prompt: str, whole: str) -> UserError:
    """The refusal of a chat that does not begin with its prompt, with the place."""
    same = next((n for n, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), None)
    place = min(len(prompt), len(whole)) if same is None else same
    shown = [one[max(0, place - SHOWN) : place + SHOWN] for one in (prompt, whole)]
    return UserError(
        f"the chat template renders the prompt as {shown[0]!r} at character {place}, and with an "
        f"answer as {shown[1]!r}: an answer would stand where the model never writes it; pass "
        "task.chat_arguments={enable_thinking:false} where the template has such a switch, or "
        "task.chat_template=<file of another template>"
    )


def no_end(frame: TextFrame, ending: str) -> UserError:
    """The refusal of a template that ends answers with no end token."""
    names = frame.tokenizer.convert_ids_to_tokens(list(frame.ends))
    return UserError(
        f"the chat template ends an answer with {ending!r}, and the end tokens of tokenizer and "
        f"generation config are {', '.join(map(repr, names))}: answers would not stop; add the "
        "token to eos_token_id in the model's generation_config.json, or pass "
        "task.chat_template=<file of a template that ends answers with an end token>"
    )


def template_of(tokenizer: Any, form: ChatForm) -> Any:
    """The template of a form. Raises UserError if there is none."""
    chosen = read_template(form.template) if form.template else tokenizer.chat_template
    if not chosen:
        raise UserError(
            "the model's tokenizer has no chat template, and the task is a chat: pass "
            "task.chat_template=<file of a Jinja template>, or a model that is made for chats "
            "such as model=smollm2_135m; task=prompts reads messages as plain text with "
            "'task.template=\"{prompt}\"'"
        )
    return chosen


def rendered(
    tokenizer: Any, form: ChatForm, example: Example, messages: Messages, is_open: bool
) -> str:
    """The text of a chat. is_open: the assistant's turn comes next."""
    chosen = template_of(tokenizer, form)
    turns = [{"role": role, "content": content} for role, content in messages]
    try:
        return str(
            tokenizer.apply_chat_template(
                turns,
                chat_template=with_fixed_day(chosen),
                add_generation_prompt=is_open,
                tokenize=False,
                **form.arguments,
            )
        )
    except Exception as error:  # a template may raise anything
        raise UserError(
            f"prompt {example.uid} does not fit the chat template ({error}): correct the row, or "
            "pass task.chat_template=<file of another template>"
        ) from error


def with_fixed_day(template: Any) -> Any:
    """A template whose strftime_now gives one day, so that runs do not depend on when they ran.

    transformers takes no functions as arguments of a template, so that a macro of the template
    shadows its own.
    """
    if not isinstance(template, str) or "strftime_now" not in template:
        return template
    replaced = "".join(f"|replace('{form}', '{DAY.strftime(form)}')" for form in DATE_FORMS)
    # The empty expression keeps a line break that the template begins with.
    macro = f"{{% macro strftime_now(form) %}}{{{{ form{replaced} }}}}{{% endmacro %}}"
    return macro + "{{ '' }}" + template


@functools.cache
def read_template(path: str) -> str:
    """The text of a template file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"task.chat_template={path} cannot be read ({error}): pass a file of a Jinja template"
        ) from error
