"""What a run's manifest and rows say about it: its settings, its age, and what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.live.progress import Progress
from rlhf_lab.runs.live.rows import Row
from rlhf_lab.runs.manifest import last_start

MOST_EVENTS = 4
FACTS = ("task", "algo", "correction", "mode", "model")


def facts_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The run's parts, N, S and seed."""
    facts = {name: str(manifest[name]) for name in FACTS if manifest.get(name)}
    if facts.get("correction") == "none":
        del facts["correction"]
    settings = manifest.get("settings") or {}
    for name, key in (("N", "updates_per_round"), ("S", "max_staleness")):
        if key in settings:
            facts[name] = str(settings[key])
    if manifest.get("seed") is not None:
        facts["seed"] = str(manifest["seed"])
    return facts


def elapsed(manifest: Mapping[str, Any], state: str, now: float) -> float:
    """Seconds from the last start to the end, or to now."""
    if "started" not in manifest:
        return 0.0
    begun = datetime.fromisoformat(last_start(manifest)).timestamp()
    ended = manifest.get("ended") if state != "running" else None
    end = datetime.fromisoformat(ended).timestamp() if ended else now
    return max(0.0, end - begun)


def events(
    manifest: Mapping[str, Any], rows: Sequence[Row], progress: Progress, num_damaged: int
) -> tuple[str, ...]:
    """What a reader should know, oldest first: restarts, groups that were lost, lines printed."""
    found = [
        f"resumed {clock_text(restart['at'])}, after it was {restart['after']}"
        for restart in manifest.get("resumed", [])
    ]
    for name, text in (
        ("dropped", "dropped as too old"),
        ("unscored", "without a reward"),
    ):
        counts = [(row.step, int(row.get(name) or 0)) for row in rows if row.get(name)]
        if counts:
            found.append(
                f"{sum(count for _, count in counts)} groups {text}, last in round {counts[-1][0]}"
            )
    restarts = rows[-1].get("restarts") if rows else None
    if restarts:
        found.append(f"restarts of generators: {restarts:.0f}")
    if num_damaged:
        found.append(f"unreadable lines of {METRICS}, left out: {num_damaged}")
    return (*found, *progress.notes)[-MOST_EVENTS:]


def clock_text(moment: str) -> str:
    """`2026-11-23 09:26 UTC`."""
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
