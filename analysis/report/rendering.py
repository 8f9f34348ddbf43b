"""Render the page's templates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from rlhf_lab_analysis.ranges import ranges_text
from rlhf_lab_analysis.rounding import MISSING, number_text


@cache
def environment() -> Environment:
    """Texts and attributes are escaped, and data in scripts cannot end them."""
    templates = Environment(
        loader=PackageLoader("rlhf_lab_analysis.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    templates.filters |= {"number": number_text, "ranges": ranges_text, "sort_key": sort_key}
    templates.globals["MISSING"] = MISSING
    return templates


def sort_key(value: float) -> str:
    """By what a column is sorted; empty for what is not known."""
    return repr(value) if math.isfinite(value) else ""


def render(template: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(values)
