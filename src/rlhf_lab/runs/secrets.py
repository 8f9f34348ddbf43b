"""Keys, tokens and passwords in texts, which must not be written to files or trackers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# user:password@ or token@ in an address.
IN_ADDRESS = re.compile(r"://[^/\s@]*@")
# Keys that are recognised by their form: Hugging Face, OpenAI and its like, GitHub, AWS.
BY_FORM = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[opsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|"
    r"glpat-[\w-]{16,}|AKIA[A-Z0-9]{12,})"
)
# Variables that hold a secret, by their last word.
SECRET_VARIABLE = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIALS?)(_?\d+)?$"
)
# Shorter values are words that occur by themselves.
LEAST_CHARACTERS = 12
MASK = "***"


def secret_in(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """What kind of secret a text holds; '' if none."""
    for name, value in known(environment).items():
        if value in text:
            return f"the value of the environment's {name}"
    if IN_ADDRESS.search(text):
        return "an address with a user or a password in it"
    return "a key or token" if BY_FORM.search(text) else ""


def masked(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with every secret in it replaced."""
    for value in known(environment).values():
        text = text.replace(value, MASK)
    return BY_FORM.sub(MASK, IN_ADDRESS.sub(f"://{MASK}@", text))


def known(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold a secret, longest value first: one may be a part of another."""
    found = {
        name: value
        for name, value in environment.items()
        if SECRET_VARIABLE.search(name.upper())
        and len(value) >= LEAST_CHARACTERS
        and not os.path.exists(value)  # the path of a file with credentials is none
    }
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))
