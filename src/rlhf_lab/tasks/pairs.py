"""Preference pairs of one form: a prompt, a chosen answer and a rejected one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_lab.tasks import chat
from rlhf_lab.tasks.tables import Row
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example
from rlhf_lab.types.text_frame import TextFrame

KEY = "generator.path"
SIDES = ("chosen", "rejected")
PARTS = ("prompt", *SIDES)


def is_pair(example: Example) -> bool:
    """Whether both answers of a pair are in it."""
    return "rejected" in example.hidden


def pair_example(row: Row, row_name: str, uid: str) -> Example:
    """The example of a row: the chosen answer is its reference, the rejected one is hidden, and so
    are numbers of answers, such as chosen_gold and rejected_gold.

    Rows have the texts prompt, chosen and rejected; prompt + chosen is a full text. Those of
    the label stage also have the tokens of both answers, which are then taken as they are, and
    those of a chat its messages (prompt_messages). Raises UserError for a row that does not fit.
    """
    every = {name: row[name] for part in PARTS if (name := f"{part}_tokens") in row}
    for name, tokens in every.items():
        is_list = isinstance(tokens, list) and all(type(token) is int for token in tokens)
        if not is_list or not tokens:
            raise UserError(
                f"{row_name} has no list of token ids in field {name!r}: correct it, or leave it "
                "out so that the text is encoded"
            )
    answers = {name: every[name] for name in every if not name.startswith("prompt")}
    if "chosen_tokens" not in answers and not row["chosen"].strip():
        raise UserError(f"{row_name} has an empty field 'chosen': write the answer, or delete it")
    return Example(
        str(row.get("uid", uid)),
        row["prompt"],
        row["chosen"],
        {"rejected": row["rejected"], **answers, **numbers_of(row)},
        messages_of(row, row_name),
    )


def is_tie(row: Row) -> bool:
    """Whether both answers are the same, so that no preference is in the row."""
    chosen, rejected = (row.get(f"{side}_tokens", row[side]) for side in SIDES)
    return bool(chosen == rejected)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and type(value) is not bool and math.isfinite(value)


def numbers_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a row has for its answers, such as chosen_gold."""
    sides = tuple(f"{side}_" for side in SIDES)
    return {name: x for name, x in row.items() if name.startswith(sides) and is_number(x)}


def messages_of(row: Row, row_name: str) -> tuple[tuple[str, str], ...]:
    """The messages of a prompt that is a chat; none of any other."""
    messages = row.get("prompt_messages", [])
    if not isinstance(messages, list) or not all(
        isinstance(turn, list) and len(turn) == 2 and all(isinstance(part, str) for part in turn)
        for turn in messages
    ):
        raise UserError(
            f"{row_name} has a field 'prompt_messages' that is no list of [role, text]: correct "
            "it, or leave it out so that the prompt is taken as it stands"
        )
    return tuple((role, content) for role, content in messages)


def with_tokens(row: Row, tokenizer: Any, form: chat.ChatForm | None = None) -> Row:
    """The row with the tokens of its texts.

    Tokens of the row itself are used if this tokenizer decodes them to its text; an answer gets the
    end token unless the row has chosen_finished or rejected_finished false. form: in which a chat
    is rendered; None takes the tokenizer's own template, and plain text where it has none.
    """
    is_chat = form is not None or tokenizer.chat_template
    messages = messages_of(row, row["prompt"]) if is_chat else ()
    form = form or chat.OWN_FORM
    example = Example(str(row.get("uid", "")), row["prompt"], "", {}, messages)
    sides = {f"{side}_tokens": side_tokens(row, side, tokenizer, example, form) for side in SIDES}
    tokens = row.get("prompt_tokens")
    is_rendered = bool(chat.rendered_messages(tokenizer, form, example))
    if is_rendered or tokens is None or not decodes_to(tokens, row["prompt"], tokenizer):
        tokens = chat.encode(tokenizer, form, example)
    return {**row, "prompt_tokens": tokens, **sides}


def side_tokens(
    row: Row, side: str, tokenizer: Any, example: Example, form: chat.ChatForm
) -> list[int]:
    """The tokens of one answer, with the end token if it was finished."""
    own = row.get(f"{side}_tokens")
    if own is not None and decodes_to(own, row[side], tokenizer):
        return list(own)
    tokens = chat.answer_tokens(tokenizer, form, example, row[side])
    return tokens if row.get(f"{side}_finished", True) else tokens[:-1]


def decodes_to(tokens: Sequence[int], text: str, tokenizer: Any) -> bool:
    """Whether the tokenizer decodes the tokens to the text."""
    known = range(len(tokenizer))
    is_known = all(token in known for token in tokens)
    return is_known and TextFrame(tokenizer).text(tokens) == text


def swap_sides(row: Mapping[str, Any]) -> dict[str, Any]:
    """The pair with chosen and rejected swapped, in all fields that belong to one of them."""
    first, second = SIDES
    other = {first: second, second: first}

    def renamed(field: str) -> str:
        side, mark, rest = field.partition("_")
        return other.get(side, side) + mark + rest

    return {renamed(field): value for field, value in row.items()}
