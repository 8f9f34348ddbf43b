"""The text frame over the chat templates of families: starts, ends, answers and thinking."""

from __future__ import annotations

import pytest

from rlhf_lab.tasks.chat import ChatForm, answer_tokens, check_end, encode, text
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example
from rlhf_lab.types.text_frame import TextFrame
from tests.support.chat_families import ANSWER, CHAT_FAMILIES, TURNS, ChatFamily
from tests.support.variants import names

ALL = CHAT_FAMILIES.keys()
# One of each kind.
OFTEN = {"ChatML", "Qwen3", "QwQ", "Llama 3", "Gemma", "Gemma 1, one end", "GLM 4", "gpt-oss"}
ANSWERED = {name for name, family in CHAT_FAMILIES.items() if not family.refused}
EXAMPLE = Example(uid="a", prompt="", reference=ANSWER, messages=TURNS)


def form(family: ChatFamily) -> ChatForm:
    return ChatForm(arguments=family.arguments)


@pytest.mark.parametrize("name", names(ALL, OFTEN))
def test_a_row_has_the_start_tokens_of_its_tokenizer(name: str) -> None:
    family = CHAT_FAMILIES[name]
    frame = TextFrame(family.tokenizer)
    starts = [family.bos] if family.adds_bos else []
    assert frame.tokenizer.convert_ids_to_tokens(frame.row("Hello")[:-5]) == starts
    assert frame.tokenizer.convert_ids_to_tokens(frame.start) == starts


@pytest.mark.parametrize("name", names(ALL, OFTEN))
def test_a_chat_has_the_start_tokens_that_its_template_writes(name: str) -> None:
    family = CHAT_FAMILIES[name]
    tokens = encode(family.tokenizer, form(family), EXAMPLE)
    bos = family.tokenizer.convert_tokens_to_ids(family.bos) if family.bos else -1
    assert tokens.count(bos) == family.num_bos
    assert not family.start.startswith(family.bos or "no") or tokens[0] == bos


@pytest.mark.parametrize("name", names(ALL, OFTEN))
def test_end_tokens_are_those_of_tokenizer_and_generation_config(name: str) -> None:
    family = CHAT_FAMILIES[name]
    frame = TextFrame(family.tokenizer)
    assert frame.tokenizer.convert_ids_to_tokens(frame.ends) == [family.end, *family.ends]


@pytest.mark.parametrize("name", names(sorted(ANSWERED), OFTEN & ANSWERED))
def test_an_answer_follows_the_prompt_as_the_template_renders_it(name: str) -> None:
    family = CHAT_FAMILIES[name]
    tokenizer, chosen = family.tokenizer, form(family)
    check_end(tokenizer, chosen, EXAMPLE)
    prompt = encode(tokenizer, chosen, EXAMPLE)
    answer = answer_tokens(tokenizer, chosen, EXAMPLE, ANSWER)
    final = family.final or family.end
    ending = family.last_parts[1].partition(final)[0]
    assert tokenizer.decode(prompt) == text(tokenizer, chosen, EXAMPLE)
    assert tokenizer.decode(answer) == family.before + ANSWER + ending + final
    frame = TextFrame(tokenizer)
    assert [token for token in answer if token in frame.ends] == answer[-1:]


@pytest.mark.parametrize("name", names(sorted(ANSWERED), OFTEN & ANSWERED))
def test_no_answer_stands_in_an_open_thought(name: str) -> None:
    family = CHAT_FAMILIES[name]
    tokenizer, chosen = family.tokenizer, form(family)
    tokens = encode(tokenizer, chosen, EXAMPLE) + answer_tokens(tokenizer, chosen, EXAMPLE, ANSWER)
    before, _, _ = tokenizer.decode(tokens).rpartition(ANSWER)
    assert before.rfind("<think>") <= before.rfind("</think>")


@pytest.mark.parametrize("name", names(sorted(ALL - ANSWERED), OFTEN - ANSWERED))
def test_a_template_without_answers_is_refused_with_the_place(name: str) -> None:
    family = CHAT_FAMILIES[name]
    with pytest.raises(UserError, match=r"task\.chat_template") as raised:
        answer_tokens(family.tokenizer, form(family), EXAMPLE, ANSWER)
    is_prefix = "task.chat_arguments" in str(raised.value)
    assert is_prefix == (family.refused == "prefix")
