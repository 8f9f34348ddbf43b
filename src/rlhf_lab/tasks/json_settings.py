"""Settings of other packages, a JSON object in one option of a task."""

from __future__ import annotations

import json
from typing import Any

from rlhf_lab.types.errors import UserError


def json_settings(option: str, text: str, example: str) -> dict[str, Any]:
    """The settings in the text of task.OPTION. Raises UserError if it is no JSON object; example:
    one that is."""
    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        quoted = example.replace('"', '\\"')
        raise UserError(
            f"task.{option}={text} is not JSON ({error}): pass an object, as in "
            f"'task.{option}=\"{quoted}\"'"
        ) from error
    if not isinstance(settings, dict):
        raise UserError(f"task.{option}={text} is not a JSON object: write it in braces")
    return settings
