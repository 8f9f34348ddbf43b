"""How often intervals hold the truth, by simulation: one program, a table for each kind."""

from __future__ import annotations

import math


def percent(share: float, number: float) -> str:
    """A share of so many simulations in percent, with its Monte Carlo error."""
    return f"{100 * share:.1f} ± {100 * math.sqrt(share * (1 - share) / number):.1f}"
