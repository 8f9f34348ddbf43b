"""Choose colour, marker and line of a condition from its settings alone, equal in all figures.

So a condition looks the same in every figure in which the same part distinguishes conditions,
whichever others are drawn. Colours are of Okabe and Ito (2008); numbers have ramps that rise in
lightness. None depends on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_hex

from rlhf_lab_analysis.plots.style import LINES

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PINK, GREY = "#0072B2", "#D55E00", "#CC79A7", "#767676"
HUES = (BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "d")

# In the order in which colours are given away; new ones go to the end.
KNOWN: Mapping[str, Sequence[str]] = {
    "algo": (
        "online_dpo ppo proximal_rloo best_of_n grpo rloo gspo cispo copg reinforce_plus_plus "
        "online_ipo dpo online_slic reinforce remax dapo dr_grpo lite_ppo a_lol ma_ppo kimi "
        "mdpo crpg crraft codpo asymre tba distill sao vcpo"
    ).split(),
    "mode": "sync async lagged free partial replay".split(),
    "correction": (
        "none truncated_is sequence_is recompute decoupled icepop geometric_mask opsm ess_scaled "
        "m2po split dppo a3po kpop estr"
    ).split(),
    "model": "nano_s nano_m nano_l pythia_410m pythia_1b pythia_2.8b smollm2_135m".split(),
    "proxy": "nano_s nano_m nano_l pythia_410m pythia_1b pythia_2.8b smollm2_135m".split(),
    "reward": (
        "paper_proxy_410m paper_proxy_1b paper_proxy_2.8b reward_model ensemble paper_proxy_160m "
        "paper_gold"
    ).split(),
    "optim.schedule_per": "update round".split(),
    "reward.combine": "single mean worst uncertainty".split(),
    "lag": "fresh fixed spread tail".split(),
}
# What having none of a key is called.
NONE = {"reward.combine": "single", "mode.lag_probabilities": "fixed"}
# Numbers: name of the ramp, least value, and the one at its end (both on a scale of doublings).
RAMPS: Mapping[str, tuple[str, float, float]] = {
    "updates_per_round": ("viridis", 1, 64),
    "max_staleness": ("plasma", 0, 8),
    "passes": ("cividis", 1, 8),
    "group_size": ("viridis", 1, 16),
}
REACH = 0.82


@dataclass(frozen=True)
class SeriesStyle:
    """Colour, marker and line style of a condition."""

    colour: str
    marker: str
    line: Any


@cache
def value_style(key: str, value: Any) -> SeriesStyle:
    """The look of a value of a part, such as algo=ppo or updates_per_round=16."""
    if key in RAMPS and isinstance(value, int | float) and not isinstance(value, bool):
        return on_ramp(key, float(value))
    known = KNOWN.get(key, ())
    value = NONE.get(key) if value in (None, "") else value
    index = known.index(str(value)) if str(value) in known else hash_of(key, str(value))
    # Markers go on where colours begin again, so that no two of a list look alike.
    return SeriesStyle(
        HUES[index % len(HUES)], MARKERS[index % len(MARKERS)], LINES[index % len(LINES)]
    )


def on_ramp(key: str, value: float) -> SeriesStyle:
    """Colour by doublings from the least value; beyond the end of the ramp ever more slowly."""
    name, least, end = RAMPS[key]
    step, whole = doublings(value, least), doublings(end, least)
    share = step / whole
    index = REACH * share if share <= 1 else 1 - (1 - REACH) / share
    number = round(step)
    return SeriesStyle(
        to_hex(colormaps[name](index)), MARKERS[number % len(MARKERS)], LINES[number % len(LINES)]
    )


def doublings(value: float, least: float) -> float:
    """How often a value is twice the least one; from 0 on that of one more."""
    return math.log2(max(value + 1, 1) if least == 0 else max(value / least, 1))


def hash_of(key: str, value: str) -> int:
    """A number for an unknown name, always the same."""
    return int.from_bytes(sha256(f"{key}={value}".encode()).digest()[:4], "big")
