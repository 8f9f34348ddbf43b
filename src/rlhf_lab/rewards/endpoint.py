"""`reward=endpoint`: what a judge behind an OpenAI-compatible endpoint is asked, and how."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from rlhf_lab.rewards.judge_prompts import PLACES, TEMPLATES, Style, places_of
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError

__all__ = ["EndpointReward", "Style", "TokenLimit"]

OWN_FIELDS = ("messages", "model", "stream")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
SECRET_FIELD = re.compile(
    r"api[_-]?key|secret|password|authorization|(access|auth)[_-]?token", re.I
)


class TokenLimit(StrEnum):
    """The request's name for the longest answer: reasoning models of OpenAI refuse the older."""

    max_tokens = "max_tokens"
    max_completion_tokens = "max_completion_tokens"


@dataclass(frozen=True)
class EndpointReward(limits.Limited, key="reward"):
    """A language model behind an OpenAI-compatible endpoint compares or rates responses
    (docs/rewards.md)."""

    name: str = limits.name("endpoint")
    base_url: str = limits.option(
        "https://api.openai.com/v1", about="Address of the endpoint, up to and with /v1."
    )
    model: str = limits.option("", about="Name of the model that the endpoint is asked for.")
    key_variable: str = limits.option(
        "OPENAI_API_KEY", about="Environment variable that holds the API key; empty sends no key."
    )
    style: Style = limits.option(
        Style.pairwise,
        about=(
            "Whether the model compares the response with the reference answer, or rates it from "
            "1 to 10."
        ),
    )
    both_orders: bool = limits.option(
        True,
        about=(
            "Whether each comparison is repeated with the answers swapped; the win is the mean of "
            "both."
        ),
    )
    template: str = limits.option(
        "",
        about=(
            "Text of the question, empty for the style's own: {prompt}, {first} and {second} for "
            "pairwise, {prompt}, {answer} and if wanted {reference} for rating."
        ),
    )
    system: str = limits.option("", about="System message before the question; empty sends none.")
    max_tokens: int = limits.tokens(512, about="Most tokens of the model's answer.")
    token_limit: TokenLimit = limits.option(
        TokenLimit.max_tokens,
        about="Name of the request's field for max_tokens, which differs between models.",
    )
    temperature: float = limits.number(
        0.0, least=0, most=100, about="Sampling temperature of the model's answers."
    )
    extra: str = limits.option(
        "",
        about=(
            "Further fields of the request, a JSON object as text; a field that is null is left "
            "out."
        ),
    )
    concurrency: int = limits.count(
        8, most=1024, about="Requests in flight at once, of each generator."
    )
    timeout_s: float = limits.seconds(60.0, about="Seconds for one request as a whole.")
    retries: int = limits.count(
        4, least=0, most=1000, about="Further attempts at a question whose request failed."
    )
    backoff_s: float = limits.pause(
        1.0,
        about=(
            "Seconds before the first further attempt, doubled each time; a Retry-After header "
            "overrides it."
        ),
    )
    max_backoff_s: float = limits.pause(60.0, about="Longest pause between attempts in seconds.")
    group_retries: int = limits.count(
        1, least=0, most=1000, about="Further attempts at a group of which a question failed."
    )
    input_price: float = limits.number(
        0.0, least=0, most=1e9, about="Dollars per million input tokens, for the reported cost."
    )
    output_price: float = limits.number(
        0.0, least=0, most=1e9, about="Dollars per million output tokens, for the reported cost."
    )
    cache: str = limits.option(
        "", about="Folder of recorded answers; empty takes output.cache/judge."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_url(self.base_url)
        require_name(self.key_variable)
        needed = PLACES[self.style]
        if self.template and not set(needed) <= set(places_of(self.template)):
            raise UserError(
                f"reward.template={self.template!r} with reward.style={self.style.value} must hold "
                f"{' and '.join(f'{{{place}}}' for place in needed)}: say where they go"
            )
        extra_fields(self.extra)

    @property
    def question(self) -> str:
        """The template that is filled."""
        return self.template or TEMPLATES[self.style]

    @property
    def request(self) -> Mapping[str, Any]:
        """Every field of a request but its messages: with them, all that decides an answer."""
        fields = {
            "model": self.model,
            self.token_limit.value: self.max_tokens,
            "temperature": self.temperature,
            **extra_fields(self.extra),
        }
        return {name: value for name, value in fields.items() if value is not None}


def require_url(url: str) -> None:
    """Refuse what is no address, and one with a password in it, which a run would record."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"reward.base_url={url}: pass an address such as http://localhost:8000/v1")
    if parts.username or parts.password or parts.query:
        raise UserError(
            f"reward.base_url: the address of {parts.hostname} has a user or a query in it, which "
            "would be recorded: put the key into the variable that reward.key_variable names"
        )


def require_name(variable: str) -> None:
    """Refuse what is no variable's name: it may be the key itself, so it is not repeated."""
    if variable and not VARIABLE.fullmatch(variable):
        raise UserError(
            "reward.key_variable: its value is not the name of a variable in capital letters: "
            "export the key under a name such as OPENAI_API_KEY, and pass that name"
        )


def extra_fields(text: str) -> dict[str, Any]:
    """The fields of `extra`."""
    try:
        fields = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise UserError(f"reward.extra={text!r} is not JSON ({error}): pass an object") from error
    if not isinstance(fields, dict):
        raise UserError(f"reward.extra={text!r} is not a JSON object: write fields in braces")
    for name in fields:
        if SECRET_FIELD.search(name):
            raise UserError(
                f"reward.extra sets {name!r}, whose value would be written down: put the key into "
                "the variable that reward.key_variable names"
            )
    for name in OWN_FIELDS:
        if name in fields:
            raise UserError(f"reward.extra sets {name!r}, which is not its to set: leave it out")
    return fields
