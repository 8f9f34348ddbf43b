"""A byte tokenizer whose digits and letters merge, with chat templates in the form of ChatML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

END = "<|im_end|>"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# With a tool's messages as those of a user, and an empty thought before the last answer alone.
THINKING = (
    "{% for message in messages %}{{ '<|im_start|>' }}"
    "{% if message['role'] == 'tool' %}{{ 'user\n<tool_response>\n' + message['content'] + "
    "'\n</tool_response>' }}"
    "{% else %}{{ message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' and loop.last %}{{ '<think>\n\n</think>\n\n' }}"
    "{% endif %}"
    "{{ message['content'] }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MERGES = [("1", "2"), ("12", "3"), ("a", "b"), ("Ġ", "a"), ("Ċ", "Ċ"), ("Ċ", "Ġ")]


def byte_tokenizer(special: Sequence[AddedToken], end: str | AddedToken) -> Any:
    """Bytes, merged by MERGES, with these special tokens. end: the end token, one of them."""
    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    vocabulary = {symbol: number for number, symbol in enumerate(symbols)}
    raw = Tokenizer(BPE(vocabulary, merges=MERGES))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(list(special))
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=end, clean_up_tokenization_spaces=False
    )


def chat_tokenizer(template: str = CHATML, takes_spaces: bool = False) -> Any:
    """takes_spaces: whether the end token has the spaces behind it."""
    end = AddedToken(END, special=True, rstrip=takes_spaces)
    others = [AddedToken(name, special=True) for name in ("<|im_start|>", "<pad>")]
    made = byte_tokenizer([*others, end], end)
    made.pad_token, made.chat_template = "<pad>", template
    return made
