"""Reference answers in the form of samples, for SFT, for preferences and for their log-probs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rlhf_lab.tasks.chat import OWN_FORM, ChatForm, answer_tokens
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample


class LongReferences(StrEnum):
    """What becomes of references beyond the response length: SFT leaves them out, or they are cut,
    without an end token or with one in the last place."""

    left_out = "left_out"
    cut = "cut"
    cut_with_end = "cut_with_end"


@dataclass(frozen=True)
class ReferenceForm:
    """How references become tokens. chat: how chats are rendered. long: those that are too long;
    where one is needed all the same, left_out is as cut. as_text: only their texts are read, and
    their tokens are those of the text, which need not be where a chat has them."""

    chat: ChatForm = OWN_FORM
    long: LongReferences = LongReferences.cut_with_end
    as_text: bool = False


USUAL = ReferenceForm()


def reference_form(task: Any, as_text: bool = False) -> ReferenceForm:
    """That of a task."""
    return ReferenceForm(task.chat_form, task.long_references, as_text)


def reference_groups(
    prompts: Sequence[Prompt],
    tokenizer: Any,
    max_tokens: int,
    form: ReferenceForm = USUAL,
) -> list[Group]:
    """References as groups of one sample, cut at the response length."""
    return [
        Group(prompt, (reference_sample(prompt, tokenizer, max_tokens, form),))
        for prompt in prompts
    ]


def reference_sample(
    prompt: Prompt, tokenizer: Any, max_tokens: int, form: ReferenceForm = USUAL
) -> Sample:
    """A reference answer in the form of a sample of at most max_tokens; see `cut_to`."""
    example = replace(prompt.example, messages=()) if form.as_text else prompt.example
    tokens = answer_tokens(tokenizer, form.chat, example, example.reference)
    return cut_to(max_tokens, tokens, example, form.long)


def cut_to(
    max_tokens: int, tokens: Sequence[int], example: Example, long: LongReferences
) -> Sample:
    """A reference's tokens as a sample of at most max_tokens (log-probs unknown, set to 0). It is
    finished, unless it is cut without an end token. text: the whole reference."""
    finish = Finish.eos
    if len(tokens) > max_tokens:
        if long is LongReferences.cut_with_end:
            tokens = [*tokens[: max_tokens - 1], tokens[-1]]
        else:
            tokens, finish = tokens[:max_tokens], Finish.length
    text = example.reference.strip()
    return Sample(tuple(tokens), (0.0,) * len(tokens), -1, finish, text)
