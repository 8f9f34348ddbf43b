"""How a reward model reads a sample: as the policy's tokens, as text, or as a chat.

Of an episode it reads the last action alone, as an answer to the prompt.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from rlhf_lab.rewards.model import Encode
from rlhf_lab.rewards.steps import Read
from rlhf_lab.tasks import chat
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Group, Sample
from rlhf_lab.types.text_frame import TextFrame


def encoder(policy_tokenizer: Any, reward_tokenizer: Any, ends_with_eos: bool = True) -> Encode:
    """How a reward model reads a sample: its tokens if the vocabulary is shared, else its text.

    ends_with_eos: as a decoder does, which scores the end token; others, and those whose tokenizer
    has no end token, get the special tokens that their tokenizer puts around a text.
    """
    if not ends_with_eos or reward_tokenizer.eos_token_id is None:
        return functools.partial(as_own_text, reward_tokenizer)
    if policy_tokenizer.get_vocab() == reward_tokenizer.get_vocab():
        return as_tokens
    return functools.partial(as_text, reward_tokenizer)


def chat_encoder(reward_tokenizer: Any, path: str, key: str = "reward.path") -> Encode:
    """Reading through the tokenizer's chat template. Raises UserError if it has none. key: the
    option that named the model."""
    if not reward_tokenizer.chat_template:
        option = f"{key.rpartition('.')[0]}.chat"
        raise UserError(
            f"{option}=true, but the tokenizer of {key}={path} has no chat template: pass "
            f"{option}=false, or a reward model that was trained on chats"
        )
    return functools.partial(as_chat, reward_tokenizer)


def steps_encoder(
    policy_tokenizer: Any, reward_tokenizer: Any, path: str, key: str, decode: Any
) -> Read:
    """How a reward model of steps reads a sample, and where in it the steps end. Raises UserError
    for a tokenizer of another vocabulary that does not map tokens to text positions."""
    if policy_tokenizer.get_vocab() == reward_tokenizer.get_vocab():
        return steps_as_tokens
    if not reward_tokenizer.is_fast:
        raise UserError(
            f"{key}={path}: its tokenizer cannot tell which token stands where in a text,"
            "  and its vocabulary is not the policy's; choose a model with a fast tokenizer"
        )
    return functools.partial(steps_as_text, reward_tokenizer, decode)


def as_tokens(group: Group, sample: Sample) -> Sequence[int]:
    return [*group.prompt.tokens, *sample.answer]


def as_text(tokenizer: Any, group: Group, sample: Sample) -> Sequence[int]:
    """Prompt and response in another vocabulary, with its end token; messages by its template."""
    frame, example = TextFrame(tokenizer), group.prompt.example
    if not example.messages or not tokenizer.chat_template:
        return [*frame.row(example.prompt + sample.text), frame.end]
    tokens = as_chat(tokenizer, group, sample)
    last = next((n for n in range(len(tokens), 0, -1) if frame.has_end(tokens[:n])), 0)
    # What stands behind the end token begins the next message.
    is_ended = last and not frame.text(tokens[last:]).strip()
    return tokens[:last] if is_ended else [*tokens, frame.end]


def as_own_text(tokenizer: Any, group: Group, sample: Sample) -> Sequence[int]:
    """Prompt and response with the special tokens that the tokenizer adds."""
    tokens: list[int] = tokenizer(group.prompt.example.prompt + sample.text)["input_ids"]
    return tokens


def as_chat(tokenizer: Any, group: Group, sample: Sample) -> list[int]:
    """The example's messages, or its prompt as the user's, and the response as the assistant's."""
    example = group.prompt.example
    before = example.messages or (("user", example.prompt),)
    messages = [*before, ("assistant", sample.text)]
    text = chat.rendered(tokenizer, chat.OWN_FORM, example, messages, is_open=False)
    return TextFrame(tokenizer).chat(text)


def steps_as_tokens(
    group: Group, sample: Sample, ends: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """A sample as it is, and the positions of its steps' last tokens."""
    prompt = group.prompt.tokens
    return [*prompt, *sample.tokens], [len(prompt) + end for end in ends]


def steps_as_text(
    tokenizer: Any,
    decode: Callable[[Sequence[int]], str],
    group: Group,
    sample: Sample,
    ends: Sequence[int],
) -> tuple[Sequence[int], Sequence[int]]:
    """A sample in another vocabulary; a step ends with the last token that begins in it."""
    start, prompt = TextFrame(tokenizer).start, group.prompt.example.prompt
    encoded = tokenizer(
        prompt + decode(sample.tokens), add_special_tokens=False, return_offsets_mapping=True
    )
    starts = [start for start, _ in encoded["offset_mapping"]]
    stops = [len(prompt) + len(decode(sample.tokens[: end + 1])) for end in ends]
    places = [len(start) + bisect_left(starts, stop) - 1 for stop in stops]
    return [*start, *encoded["input_ids"]], places
