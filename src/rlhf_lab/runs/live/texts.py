"""Short texts of durations, numbers and shares, and sparklines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

BARS = "▁▂▃▄▅▆▇█"
# For terminals without UTF-8.
ASCII_BARS = "_.-=+*%#"
# Values of a histogram that have a bar of their own; more share bars.
MOST_BARS = 16


def seconds_text(seconds: float) -> str:
    """`42s`, `3m05s` or `2h07m`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes_left:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def number_text(value: float) -> str:
    """Three digits: `0.512`, `5.5`, `1.2e-05`."""
    return f"{value:.3g}"


def numbers_text(numbers: Mapping[str, float]) -> str:
    """`reward 0.512  kl 3.1`: three digits each."""
    return "  ".join(f"{name} {number_text(value)}" for name, value in numbers.items())


def count_text(value: float) -> str:
    """`873`, `12.3k` or `4.56M`."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= 10 * size or (unit == "M" and value >= size):
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def share_text(share: float) -> str:
    """`53%`."""
    return f"{100 * share:.0f}%"


def bars_for(encoding: str | None) -> str:
    """The characters of sparklines that an encoding has."""
    try:
        BARS.encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ASCII_BARS
    return BARS


def sparkline(values: Sequence[float], width: int, bars: str = BARS) -> str:
    """A bar per value from the lowest to the highest; of more than `width` values, bars are means
    of neighbours. "" without values."""
    means = thinned(values, width)
    if not means:
        return ""
    low, high = min(means), max(means)
    if low == high:
        return bars[len(bars) // 2 - 1] * len(means)
    top = len(bars) - 1
    return "".join(bars[round((value - low) / (high - low) * top)] for value in means)


def thinned(values: Sequence[float], most: int) -> list[float]:
    """At most `most` values: means of neighbours, in order."""
    if len(values) <= most:
        return list(values)
    edges = [round(number * len(values) / most) for number in range(most + 1)]
    return [
        math.fsum(values[start:end]) / (end - start) for start, end in itertools.pairwise(edges)
    ]


def histogram_text(counts: Mapping[int, int], bars: str = BARS) -> str:
    """`4 ▁▃█▂ 7`: a bar per whole number between the smallest and the largest, which stand beside
    them; its height is the share of the count. "" if there are not two numbers."""
    seen = {value: count for value, count in counts.items() if count > 0}
    if len(seen) < 2:
        return ""
    low, high = min(seen), max(seen)
    width = -(-(high - low + 1) // MOST_BARS)
    sums = [0] * ((high - low) // width + 1)
    for value, count in seen.items():
        sums[(value - low) // width] += count
    top = len(bars) - 1
    drawn = "".join(bars[math.ceil(count / max(sums) * top)] for count in sums)
    return f"{low} {drawn} {high}"
