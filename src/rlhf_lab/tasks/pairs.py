"""Preference pairs: a prompt, a chosen answer and a rejected one, as rows of one form.

Data sets have pairs as texts or as messages, with a prompt or with one that is the common beginning
of both sides. Rows of the one form have texts in prompt, chosen and rejected, and prompt_messages
where the prompt is a chat.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from rlhf_lab.tasks import chat
from rlhf_lab.tasks.chat import REMEDY, Turns, as_text, messages_of, parsed, plain_text
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
        row_messages(row, row_name),
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


def row_messages(row: Row, row_name: str) -> tuple[tuple[str, str], ...]:
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
    messages = row_messages(row, row["prompt"]) if is_chat else ()
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


HELD_OUT = "held_out"
# Published sets end answers in it (arXiv:2403.17031, detail 3); the end token itself is added when
# the text is encoded.
END = "<|endoftext|>"
# The assistant's turn in a dialogue that is a text, as in HH-RLHF (arXiv:2204.05862).
ASSISTANT = re.compile(r"(?:^|\n)[ \t]*assistant:", re.IGNORECASE)
# Scores of both sides under the names in which sets are published; the first one that is there is
# the gold score.
SCORES = (
    ("chosen_gold", "rejected_gold"),
    ("score_chosen", "score_rejected"),
    ("chosen_score", "rejected_score"),
    ("chosen_rating", "rejected_rating"),
    ("chosen-rating", "rejected-rating"),
)
# What a row of the label stage has in addition to its texts.
OWN_FACTS = ("uid", "is_swapped", "prompt_messages", *(f"{side}_finished" for side in SIDES))
OWN = (*OWN_FACTS, *(f"{part}_tokens" for part in PARTS))
# Other names of the prompt. A common beginning of the answers is none where one of them is there.
OTHER_PROMPTS = ("query", "question", "instruction", "input", "context", "post")
ADD = "add it, or name the column by labels.prompt_column, chosen_column, rejected_column"


Kind = TypeVar("Kind", str, Turns)


class Pair(NamedTuple):
    """The texts of a pair, and the messages of its prompt if it is a chat."""

    prompt: str
    chosen: str
    rejected: str
    messages: Turns = ()


@dataclass(frozen=True)
class PromptForm:
    """How the task shows prompts: see its options chat and template."""

    is_chat: bool = False
    template: str = ""

    def shown(self, pair: Pair) -> Pair:
        """A plain prompt as a message with is_chat; messages as plain text with a template. Other
        plain prompts are full texts, around which nothing is put."""
        text = plain_text(pair.messages) if pair.messages else pair.prompt
        shown = self.template.replace("{prompt}", text) if self.template else text
        if pair.messages:
            return Pair(shown, pair.chosen, pair.rejected) if self.template else pair
        if not self.is_chat:
            return pair
        return Pair(shown, pair.chosen.strip(), pair.rejected.strip(), (("user", shown),))


def form_of(task: Any) -> PromptForm:
    """That of a task. A template of the task's own columns shows no other prompts."""
    template = task.template if "{prompt}" in task.template else ""
    return PromptForm(task.chat in (True, "true"), template)


@dataclass(frozen=True)
class PairColumns:
    """The columns of prompt and answers, and the split of the pairs that are held out. kept: a
    further column that is kept, '' for none. form: of prompts."""

    prompt: str = "prompt"
    chosen: str = "chosen"
    rejected: str = "rejected"
    held_out: str = HELD_OUT
    kept: str = ""
    form: PromptForm = field(default_factory=PromptForm)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that a set must have; the prompt may be the beginning of both answers."""
        own = (self.prompt,) if self.prompt != PairColumns.prompt else ()
        return (*own, self.chosen, self.rejected)

    def wants(self, name: str, is_plain: bool) -> bool:
        """Whether anything of a column is read."""
        scores = (column for pair in SCORES for column in pair)
        others = (*OWN, *OTHER_PROMPTS, *scores, self.kept)
        if name in (self.prompt, self.chosen, self.rejected, *others):
            return True
        return is_plain and name.startswith(tuple(f"{side}_" for side in SIDES))

    def row(self, row: Row, name: str) -> Row:
        """The pair of a row, with its numbers and what the label stage wrote of it. Raises
        UserError for a row that has no pair."""
        read = self.pair(row, name)
        pair = read if "prompt_messages" in row else self.form.shown(read)
        # Tokens are those of the prompt as it was shown.
        own = OWN if pair == read else OWN_FACTS
        found = {key: row[key] for key in own if key in row} | numbers_of(row) | gold_of(row)
        if pair.messages:
            found["prompt_messages"] = [list(turn) for turn in pair.messages]
        if self.kept:
            if self.kept not in row:
                raise UserError(
                    f"reward_model.accuracy_by={self.kept}: {name} has no such field, but "
                    f"{', '.join(sorted(row))}; name one of these"
                )
            found[self.kept] = row[self.kept]
        return found | dict(zip(PARTS, pair[:3], strict=True))

    def pair(self, row: Row, name: str) -> Pair:
        """The pair of a row as the data has it."""
        for column in (self.chosen, self.rejected):
            if column not in row:
                raise UserError(f"{name} has no field {column!r} ({found_in(row)}): {ADD}")
        sides = [parsed(row[column]) for column in (self.chosen, self.rejected)]
        are_texts = [isinstance(side, str) for side in sides]
        if all(are_texts):
            return self._of_texts(row, name, *(side.removesuffix(END) for side in sides))
        if any(are_texts):
            place = self.chosen if are_texts[1] else self.rejected
            raise UserError(
                f"{name} has no text in field {place!r}, and one in the other answer "
                f"({found_in(row)}): {REMEDY}"
            )
        return self._of_chats(row, name, sides)

    def _of_texts(self, row: Row, name: str, chosen: str, rejected: str) -> Pair:
        """Answers that are texts. Rows of the label stage have the messages of a chat too."""
        if self.prompt not in row:
            return self._of_beginning(row, name, chosen, rejected)
        prompt = parsed(row[self.prompt])
        if isinstance(prompt, str):
            if not prompt.strip():
                raise UserError(
                    f"{name} has an empty field {self.prompt!r}: write the text, or delete the row"
                )
            return Pair(prompt, chosen, rejected)
        if not isinstance(prompt, list):
            raise UserError(f"{name} has no text in field {self.prompt!r} ({found_in(row)}): {ADD}")
        turns = prompt_messages(messages_of(prompt, f"{name} has a prompt", name), name)
        return Pair(as_text(turns), chosen.strip(), rejected.strip(), turns)

    def _of_beginning(self, row: Row, name: str, chosen: str, rejected: str) -> Pair:
        """The prompt is what both texts begin with: up to the assistant's last turn in it, or else
        up to a whole word."""
        shared = common(chosen, rejected)
        turns = list(ASSISTANT.finditer(shared))
        end = turns[-1].end() if turns else max(shared.rfind(" "), shared.rfind("\n"), 0)
        others = [other for other in OTHER_PROMPTS if other in row]
        if others or not shared[:end].strip():
            meant = f" (did you mean {others[0]!r}?)" if others else ""
            raise UserError(
                f"{name} has no field {self.prompt!r}{meant}, and the answers have no beginning in "
                f"common that could be the prompt ({found_in(row)}): {ADD}"
            )
        return Pair(shared[:end], chosen[end:], rejected[end:])

    def _of_chats(self, row: Row, name: str, sides: list[Any]) -> Pair:
        """Answers that are messages, with those of the prompt in front of them or not."""
        given = parsed(row.get(self.prompt))
        both = [
            messages_of(side, f"{name} has a field {column!r}", name, may_be_blank=True)
            for side, column in zip(sides, (self.chosen, self.rejected), strict=True)
        ]
        if given is None or isinstance(given, str):
            most = min(map(len, both)) - 1
            prompt = common(*(turns[:most] for turns in both))
            if not prompt and given and given.strip():
                prompt = (("user", given),)
        else:
            prompt = messages_of(given, f"{name} has a prompt", name)
        text = as_text(prompt_messages(prompt, name))
        chosen, rejected = (answer_after(prompt, turns, name) for turns in both)
        return Pair(text, chosen, rejected, prompt)


def common(first: Kind, second: Kind) -> Kind:
    """What two texts, or two tuples of messages, begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    differing = (number for number, (a, b) in pairs if a != b)
    return first[: next(differing, min(len(first), len(second)))]


def prompt_messages(turns: Turns, name: str) -> Turns:
    """The messages of a prompt. Raises UserError if the last one is not the user's."""
    if not turns or turns[-1][0] != "user":
        role = f"is of {turns[-1][0]}" if turns else "is not there"
        raise UserError(f"{name} has a prompt whose last message {role}, not of the user: {REMEDY}")
    return turns


def answer_after(prompt: Turns, turns: Turns, name: str) -> str:
    """The answer of a side, which has the messages of the prompt in front of it or not."""
    rest = turns[len(prompt) :] if turns[: len(prompt)] == prompt else turns
    if len(rest) != 1 or rest[0][0] != "assistant":
        roles = ", ".join(role for role, _ in rest)
        raise UserError(
            f"{name} has an answer of the messages {roles or 'none'}, and only one message of the "
            f"assistant is read behind what both sides begin with: {REMEDY}"
        )
    return rest[0][1].strip()


def found_in(row: Mapping[str, Any]) -> str:
    """The names of a row's fields, for a refusal."""
    return f"fields found: {', '.join(sorted(row)) or 'none'}"


def gold_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The scores of both answers that a set is published with, as gold scores; {} without."""
    for names in SCORES:
        scores = [row.get(name) for name in names]
        if all(map(is_number, scores)):
            return {f"{side}_gold": row[name] for side, name in zip(SIDES, names, strict=True)}
    return {}
