"""Small tokenizers and chat templates in the forms of published families."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from tests.support.chats import CHATML, MERGES

# Tokens of every tokenizer here.
SPECIAL = (
    *("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "<turn>", "</turn>", "<think>"),
    *("</think>", "<a>", "<|response|>", "[gMASK]", "<sop>"),
)
TURNS = (
    "{% for m in messages %}<turn>{{ m['role'] }}\n{{ m['content'] | trim }}</turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)
INSTRUCTIONS = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'assistant' %}"
    " {{ m['content'] }}{{ eos_token }}{% else %}[I] {{ m['content'] }} [/I]{% endif %}{% endfor %}"
)
# An open thought in front of every answer, which answers without one have closed.
OPEN_THOUGHT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '\n</think>\n\n' }}{% endif %}"
    "{% endif %}"
)
THOUGHT = "('<think>\n\n</think>\n\n' if message['role'] == 'assistant' else '')"
EMPTY_THOUGHT = CHATML.replace("message['role'] + '\n'", f"message['role'] + '\n' + {THOUGHT}")
RESPONSES = CHATML.replace("message['content'] ", "message['content'] + '<|response|>' ")
SPACED = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
OTHER_PROMPT = CHATML.replace("'<|im_start|>assistant\n'", "'<|im_start|>model\n'")


def special_tokenizer(
    template: str = "",
    eos: str = "</s>",
    before: Sequence[str] = (),
    behind: Sequence[str] = (),
    merges: Sequence[tuple[str, str]] = MERGES,
) -> Any:
    """Bytes with a few merges and the tokens of SPECIAL. before, behind: special tokens that it
    puts around a plain text."""
    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *map("".join, merges)]
    raw = Tokenizer(BPE({one: n for n, one in enumerate(symbols)}, merges=list(merges)))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    if before or behind:
        known = [(name, raw.token_to_id(name)) for name in (*before, *behind)]
        single = " ".join((*before, "$A", *behind))
        raw.post_processor = processors.TemplateProcessing(single=single, special_tokens=known)
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<s>",
        eos_token=eos,
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = template or None
    return made


@dataclass(frozen=True)
class Family:
    """A template with its tokenizer. ends: end tokens of the generation config. bos: BOS tokens of
    a chat. end: the token that ends an answer. front: what the template writes in front of an
    answer behind the prompt, tail: between the answer and the end token."""

    template: str
    eos: str = "</s>"
    before: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()
    bos: int = 0
    end: str = "</s>"
    front: str = ""
    tail: str = ""


FAMILIES = {
    "ChatML": Family(CHATML, eos="<|im_end|>", end="<|im_end|>"),
    "ChatML, end token in the generation config": Family(
        CHATML, ends=("<|im_end|>",), end="<|im_end|>"
    ),
    "Gemma": Family(
        "{{ bos_token }}" + TURNS, before=("<s>",), ends=("</turn>",), bos=1, end="</turn>"
    ),
    "Llama 3": Family(
        "{{ bos_token }}" + TURNS, "</turn>", ("<s>",), ("<|im_end|>",), bos=1, end="</turn>"
    ),
    "Phi-3": Family(TURNS, ends=("</turn>", "</s>"), end="</turn>"),
    "Zephyr": Family(TURNS, "</turn>", before=("<s>",), end="</turn>"),
    "Mistral": Family(INSTRUCTIONS, before=("<s>",), bos=1, front=" "),
    "Qwen3": Family(
        EMPTY_THOUGHT,
        eos="<|im_end|>",
        ends=("<|im_end|>", "</s>"),
        end="<|im_end|>",
        front="<think>\n\n</think>\n\n",
    ),
    "Qwen3.5 without thoughts": Family(
        OPEN_THOUGHT,
        eos="<|im_end|>",
        arguments=(("enable_thinking", False),),
        end="<|im_end|>",
    ),
    "Cohere": Family(RESPONSES, eos="<|im_end|>", end="<|im_end|>", tail="<|response|>"),
    "a space at the border": Family(SPACED),
}
