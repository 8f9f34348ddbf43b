"""Numbers and estimates as text."""

from __future__ import annotations

import math

from rlhf_lab_analysis.statistics.results import Estimate

MISSING = "–"  # noqa: RUF001


def fixed(value: float, digits: int) -> str:
    """A number to some digits after the point, without the sign of a rounded zero."""
    if not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "")
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def number_text(value: float) -> str:
    """Whole numbers as they are, else four digits, but three decimals below 1."""
    if not math.isfinite(value):
        return MISSING if math.isnan(value) else str(value)
    if value and float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    if value and abs(value) < 1e-3:
        return f"{value:.4g}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:#.4g}".removesuffix(".")


def estimate_text(estimate: Estimate) -> str:
    """Such as 0.512 [0.431, 0.604]."""
    point, low, high = map(number_text, (estimate.point, estimate.low, estimate.high))
    return f"{point} [{low}, {high}]"
