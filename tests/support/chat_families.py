"""Tokenizers with the chat templates of families, from tests/data/chat_templates.yaml."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, processors

from rlhf_lab.runs.reading import read_yaml
from rlhf_lab.types.text_frame import framed
from tests.support.chats import byte_tokenizer

ROLES = ("system", "user", "assistant")
MARKER = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|[\[\]][be]?~!?[be]?[\[\]]")
TURNS = (("user", "Name a river."), ("assistant", "The Nile."), ("user", "Another river?"))
ANSWER = "The Congo."


@dataclass(frozen=True)
class ChatFamily:
    """A row of the table, whose head has the sentence for each field."""

    end: str
    bos: str = ""
    ends: list[str] = field(default_factory=list)
    adds_bos: bool = False
    markers: str = "tokens"
    turn: list[str] = field(default_factory=list)
    system: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    assistant: list[str] = field(default_factory=list)
    start: str = ""
    open: str | None = None
    quiet: str = ""
    last: str | list[str] = ""
    tail: str = ""
    num_bos: int = 1
    before: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    final: str = ""
    refused: str = ""

    def parts(self, role: str) -> list[str]:
        """What stands before and behind the text of a role; none for one that is refused."""
        own: list[str] = getattr(self, role)
        return own or [part.replace("{role}", role) for part in self.turn]

    @property
    def last_parts(self) -> list[str]:
        """What stands before and behind the last answer of a chat."""
        if isinstance(self.last, list):
            return self.last
        before, behind = self.parts("assistant")
        return [self.last or before, behind]

    @property
    def template(self) -> str:
        """Jinja."""
        turns = {role: around("m.content", parts) for role in ROLES if (parts := self.parts(role))}
        branches = "".join(f"{{% elif m.role == '{role}' %}}{body}" for role, body in turns.items())
        opened = self.parts("assistant")[0] if self.open is None else self.open
        is_quiet = "enable_thinking is defined and not enable_thinking"
        return (
            f"{self.start}{{% for m in messages %}}{{% if loop.last and m.role == 'assistant' %}}"
            f"{around('m.content', self.last_parts)}{branches}"
            "{% else %}{{ raise_exception('a role that is not known') }}{% endif %}{% endfor %}"
            f"{{% if add_generation_prompt %}}{literal(opened)}"
            f"{{% if {is_quiet} %}}{literal(self.quiet)}{{% endif %}}"
            f"{{% else %}}{literal(self.tail)}{{% endif %}}"
        )

    @functools.cached_property
    def tokenizer(self) -> Any:
        """A tokenizer of bytes with these tokens, its text frame found."""
        parts = [self.start, self.open or "", self.quiet, self.tail, *self.last_parts]
        parts += [part for role in ROLES for part in self.parts(role)]
        found = MARKER.findall(" ".join(parts)) if self.markers == "tokens" else []
        special = dict.fromkeys([*filter(None, (self.bos, self.end, *self.ends)), *found])
        made = byte_tokenizer([AddedToken(name, special=True) for name in special], self.end)
        made.bos_token = self.bos or None
        made.chat_template = self.template
        if self.adds_bos:
            pair = (self.bos, made.convert_tokens_to_ids(self.bos))
            made.backend_tokenizer.post_processor = processors.TemplateProcessing(
                single=f"{self.bos} $A", special_tokens=[pair]
            )
        return framed(made, made.convert_tokens_to_ids(self.ends))


def literal(text: str) -> str:
    """Text in a template; without quotes, a line break behind a block would be dropped."""
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}"


def around(name: str, parts: list[str]) -> str:
    """A variable between two texts."""
    return f"{literal(parts[0])}{{{{ {name} }}}}{literal(parts[1])}"


TABLE = read_yaml(Path(__file__).parents[1] / "data" / "chat_templates.yaml")
CHAT_FAMILIES = {name: ChatFamily(**fields) for name, fields in TABLE.items()}
