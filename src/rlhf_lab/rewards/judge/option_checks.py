"""Checks of a judge's options, which refuse what a run must not write down."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

from rlhf_lab.types.errors import UserError

OWN_FIELDS = ("messages", "model", "stream")
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
SECRET_FIELD = re.compile(
    r"api[_-]?key|secret|password|authorization|(access|auth)[_-]?token", re.I
)


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
