"""Colours of a drawn timeline: a hue for each version of the weights, a shade for each phase."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.runs.timeline import PAUSED, LaneSpan

# tab10 without its grey, which stands for idle time.
PALETTE = (
    "#1f77b4 #ff7f0e #2ca02c #d62728 #9467bd #8c564b #e377c2 #3949ab #bcbd22 #17becf"
).split()
# Share of white (above zero) or black (below) that is mixed into a version's colour.
SHADES = {"generate": 0.0, "score": 0.55, "reference": -0.18, "update": -0.42}
OTHER = "#6b7280"
PAUSE = "#c3c8d0"
OTHER_LABEL = "sync, probe, track, save, checkpoint"
PAUSED_LABEL = "paused while the trainer trains"
IDLE_LABEL = "idle or waiting"


def colour(span: LaneSpan) -> str:
    """The colour of the version, lighter or darker by phase; grey for what neither makes, a
    lighter one for pauses."""
    if span.phase == PAUSED:
        return PAUSE
    if span.phase not in SHADES:
        return OTHER
    return shaded(PALETTE[span.version % len(PALETTE)], SHADES[span.phase])


def shaded(colour: str, share: float) -> str:
    target = 255 if share > 0 else 0
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    mixed = [round(part + (target - part) * abs(share)) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def phase_colours(has_pauses: bool = False) -> list[tuple[str, str]]:
    """Labels and colours of the phases for a legend, in the colour of version 0; of pauses where
    there are any."""
    phases = [(phase, shaded(PALETTE[0], share)) for phase, share in SHADES.items()]
    pauses = [(PAUSED_LABEL, PAUSE)] if has_pauses else []
    return [*phases, (OTHER_LABEL, OTHER), *pauses]


def version_colours(spans: Sequence[LaneSpan]) -> list[tuple[str, str]]:
    """Labels and colours of the versions at work; those that share a colour share a line."""
    versions = sorted({span.version for span in spans if span.phase in SHADES})
    alike: dict[int, list[int]] = {}
    for version in versions:
        alike.setdefault(version % len(PALETTE), []).append(version)
    return [
        (
            ", ".join(f"v{version}" for version in same[:2]) + (" …" if same[2:] else ""),
            PALETTE[key],
        )
        for key, same in alike.items()
    ]
