"""The options of `reward=endpoint`: endpoint, request, question, retries, prices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rlhf_lab.rewards.judge.option_checks import extra_fields, require_name, require_url
from rlhf_lab.rewards.judge.prompts import PLACEHOLDERS, TEMPLATES, Style, placeholders_in
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.tasks.extras import require_package
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError


class TokenLimit(StrEnum):
    """The request's name for the longest answer: reasoning models of OpenAI refuse the older."""

    max_tokens = "max_tokens"
    max_completion_tokens = "max_completion_tokens"


@dataclass(frozen=True)
class EndpointReward(RewardOptions):
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
        needed = PLACEHOLDERS[self.style]
        if self.template and not set(needed) <= set(placeholders_in(self.template)):
            raise UserError(
                f"reward.template={self.template!r} with reward.style={self.style.value} must hold "
                f"{' and '.join(f'{{{place}}}' for place in needed)}: say where they go"
            )
        extra_fields(self.extra)

    @property
    def reads_reference(self) -> str:
        if self.style is Style.pairwise:
            return "style=pairwise"
        return "template" if "reference" in placeholders_in(self.template) else ""

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

    def require_usable(self, key: str) -> None:
        require_package("openai", "judge", f"{key}=endpoint")
        if not self.model:
            raise UserError(
                f"{key}.model='': name the language model that judges, as its endpoint calls it"
            )
        self.api_key(key)

    def api_key(self, at: str = "reward") -> str:
        """The API key from the environment, which is never shown or recorded; '' where none is
        sent. at: where these options are mounted."""
        variable = self.key_variable
        if not variable:
            return ""
        key = os.environ.get(variable, "")
        if not key:
            raise UserError(
                f"{at}.key_variable={variable}: the environment has no such variable: export "
                f"{variable}=<key>, or pass {at}.key_variable='' for an endpoint that asks for "
                "none"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UserError(
                f"{at}.key_variable={variable}: its value has blanks, line ends or other "
                "characters that no key has: set it again"
            )
        return key
