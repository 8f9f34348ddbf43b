"""Fixed preference pairs: a JSONL file of two answers to each prompt, the better one known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.tasks import chat
from rlhf_lab.tasks.jsonl import JsonLines
from rlhf_lab.tasks.tables import RequiredFields, Row
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

KEY = "generator.path"
SIDES = ("chosen", "rejected")
PARTS = ("prompt", *SIDES)


def pair_table(path: Path, key: str = KEY) -> JsonLines:
    """The rows of a file of pairs, each of them looked at. key: the option that named the file."""
    table = JsonLines(path, RequiredFields(("prompt", *SIDES), ("prompt",), key, "add it"))
    for index, row in enumerate(table):
        pair_example(row, table.place(index), "")
    return table


def pair_examples(path: Path) -> list[Example]:
    """One example a row: the chosen answer is its reference, the rejected one is hidden.

    Rows have the text fields prompt, chosen and rejected; prompt + chosen is a full text. Those of
    the label stage also have the tokens of both answers, which are then taken as they are, and
    those of a chat its messages (prompt_messages).
    """
    table = pair_table(path)
    return [
        pair_example(row, table.place(index), f"{path.name}:{table.number(index)}")
        for index, row in enumerate(table)
    ]


def pair_example(row: Row, place: str, uid: str) -> Example:
    """One row, or the reason why nothing can be learned from it."""
    every = {name: row[name] for part in PARTS if (name := f"{part}_tokens") in row}
    for name, given in every.items():
        is_list = isinstance(given, list) and all(type(token) is int for token in given)
        if not is_list or not given:
            raise UserError(
                f"{place} has no list of token ids in field {name!r}: correct it, or leave it out "
                "so that the text is encoded"
            )
    tokens = {name: given for name, given in every.items() if not name.startswith("prompt")}
    if "chosen_tokens" not in tokens and not row["chosen"].strip():
        raise UserError(f"{place} has an empty field 'chosen': write the answer, or delete it")
    chosen, rejected = (tokens.get(f"{side}_tokens", row[side]) for side in SIDES)
    if chosen == rejected:
        raise UserError(
            f"{place} has equal fields 'chosen' and 'rejected': no preference is in it; correct or "
            "delete the row"
        )
    return Example(
        str(row.get("uid", uid)),
        row["prompt"],
        row["chosen"],
        {"rejected": row["rejected"], **tokens},
        messages_of(row, place),
    )


def messages_of(row: Row, place: str) -> tuple[tuple[str, str], ...]:
    """The chat that the prompt is, if it is one."""
    given = row.get("prompt_messages", [])
    if not isinstance(given, list) or not all(
        isinstance(turn, list) and len(turn) == 2 and all(isinstance(part, str) for part in turn)
        for turn in given
    ):
        raise UserError(
            f"{place} has a field 'prompt_messages' that is no list of [role, text]: correct it, "
            "or leave it out so that the prompt is taken as it stands"
        )
    return tuple((role, said) for role, said in given)


def with_tokens(row: Row, tokenizer: Any) -> Row:
    """The row with its texts as this tokenizer reads them.

    Tokens that the row has are kept where they are the tokenizer's own spelling of its text; an
    answer gets the end token unless the row says that it was never finished.
    """
    sides = {f"{side}_tokens": answer_tokens(row, side, tokenizer) for side in SIDES}
    given = row.get("prompt_tokens")
    if (messages := messages_of(row, row["prompt"])) and tokenizer.chat_template:
        given = chat.encode(tokenizer, "", Example("", row["prompt"], "", {}, messages))
    elif given is None or not spells(given, row["prompt"], tokenizer):
        given = list(tokenizer(row["prompt"], add_special_tokens=False)["input_ids"])
    return {**row, "prompt_tokens": given, **sides}


def answer_tokens(row: Row, side: str, tokenizer: Any) -> list[int]:
    """One answer, ended."""
    given = row.get(f"{side}_tokens")
    if given is not None and spells(given, row[side], tokenizer):
        return list(given)
    tokens = list(tokenizer(row[side], add_special_tokens=False)["input_ids"])
    return [*tokens, tokenizer.eos_token_id] if row.get(f"{side}_finished", True) else tokens


def spells(tokens: Sequence[int], text: str, tokenizer: Any) -> bool:
    """Whether the tokens are this text to the tokenizer."""
    known = range(len(tokenizer))
    is_known = all(token in known for token in tokens)
    return is_known and bool(tokenizer.decode(tokens, skip_special_tokens=True) == text)


def exchanged(row: Mapping[str, Any]) -> dict[str, Any]:
    """The pair with its sides exchanged, and with them all fields that belong to one."""
    first, second = SIDES
    other = {first: second, second: first}

    def renamed(field: str) -> str:
        side, mark, rest = field.partition("_")
        return other.get(side, side) + mark + rest

    return {renamed(field): value for field, value in row.items()}
