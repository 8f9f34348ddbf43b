"""What an argument of a command is: a folder, or an option."""

from __future__ import annotations

import os

from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.types.errors import UserError


def is_option(text: str) -> bool:
    """Whether an argument is an override or a flag, and no folder.

    A folder may have any name: one with `=` in it is told by the run that it holds, or by a path
    that no override begins with. One that begins with a dash is written ./-NAME.
    """
    if text.startswith(("/", "./", "../")):
        return False
    if text.startswith(("-", "~")):
        return True
    # Not Path.is_file, which raises at a text that is too long for a name.
    return "=" in text and not os.path.isfile(os.path.join(text, MANIFEST))


def refuse_undecodable(text: str) -> None:
    """Refuse bytes that are no UTF-8: neither a config nor a manifest could hold them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise UserError(f"{shown}: its bytes are no UTF-8: rename the file or folder") from error
