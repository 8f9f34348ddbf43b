"""The state of a run as its files show it now: the one source of every live view.

`RunFollower` reads manifest.json, progress.json, metrics.jsonl, evals.jsonl and samples.jsonl of a
run that this or another process writes. It never raises at files that are damaged or half written.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import MANIFEST, METRICS
from rlhf_lab.runs.live.files import LastSample, NewestSample, RoundRow, RowFile, ScoreFile, Scores
from rlhf_lab.runs.live.progress import PROGRESS, Progress, read_progress
from rlhf_lab.runs.manifest import error_of, last_start, read_manifest, state_in
from rlhf_lab.runs.reading import Unreadable

# Rounds that a smoothed number covers.
WINDOW = 10
MOST_EVENTS = 4
FACTS = ("task", "algo", "correction", "mode", "model")
Now = Callable[[], float]
MEANS = ("reward", "kl", "length", "eos_rate", "entropy", "grad_norm")


class RoundWindow:
    """The last rounds of `rows`, at most WINDOW. Sums in rows count from the run's beginning, so a
    window's share is the difference between its last row and the row before it."""

    def __init__(self, rows: Sequence[RoundRow]) -> None:
        self.rows = rows[-WINDOW:]
        self._before: RoundRow | None = None
        if len(rows) > WINDOW:
            self._before = rows[-WINDOW - 1]
        elif len(rows) > 1 and rows[0].step > 0:
            # Of a long file only the end was read.
            self._before, self.rows = rows[0], rows[1:]

    @property
    def num_rounds(self) -> int:
        return len(self.rows)

    def mean(self, name: str) -> float | None:
        """The mean of a number over the rounds that have it."""
        values = [value for row in self.rows if (value := row.get(name)) is not None]
        return sum(values) / len(values) if values else None

    def change(self, name: str) -> float | None:
        """By how much a sum grew; None where it is unknown."""
        end = self.rows[-1].get(name) if self.rows else None
        if end is None:
            return None
        start = self._before.get(name) if self._before is not None else 0.0
        return None if start is None else end - start

    def share(self, name: str, lanes: int = 1) -> float | None:
        """The share of the wall-clock of `lanes` workers that a sum of seconds took, 0 to 1."""
        amount, wall = self.change(name), self.change("wall")
        if amount is None or not wall or wall < 0:
            return None
        return min(1.0, max(0.0, amount / (wall * lanes)))

    def per_second(self, name: str) -> float | None:
        """How much a sum grew per second of wall-clock."""
        amount, wall = self.change(name), self.change("wall")
        return amount / wall if amount is not None and wall and wall > 0 else None

    @property
    def seconds_per_round(self) -> float | None:
        wall = self.change("wall")
        return wall / self.num_rounds if wall is not None and wall >= 0 else None

    def lags(self, unit: str) -> dict[int, int]:
        """Rows by lag over the window. unit: rounds or updates."""
        total: Counter[int] = Counter()
        for row in self.rows:
            total.update(row.rounds if unit == "rounds" else row.updates)
        return dict(sorted(total.items()))


def shares(window: RoundWindow, generators: int) -> dict[str, float | None]:
    """How the lanes spent the window."""
    if generators:
        return {
            "trainer_waiting": window.share("wait"),
            "generator_waiting": window.share("generator_wait", generators),
        }
    generating, scoring = window.share("generate"), window.share("score")
    if generating is not None and scoring is not None:
        generating = min(1.0, generating + scoring)
    return {"generating": generating, "training": window.share("train")}


def facts_of(manifest: Mapping[str, Any]) -> dict[str, str]:
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
    manifest: Mapping[str, Any], rows: Sequence[RoundRow], progress: Progress, num_damaged: int
) -> tuple[str, ...]:
    """What a reader should know, oldest first: restarts, groups that were lost, lines printed."""
    found = []
    for restart in manifest.get("resumed", []):
        at = datetime.fromisoformat(restart["at"]).astimezone(UTC)
        found.append(f"resumed {at:%Y-%m-%d %H:%M} UTC, after it was {restart['after']}")
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


@dataclass(frozen=True)
class LiveState:
    """What a run is doing. Numbers that its files do not have are None.

    state: as in the manifest, died, or unreadable. stage, stage_done, stage_total, stage_eta: what
    the process does, with seconds left. phase, phase_seconds: within the stage. rounds_done,
    rounds: of the training. elapsed: seconds since the last start. eta: seconds of training left,
    at the pace of the window. silent: seconds since any of its files changed. window: rounds that
    smoothed numbers cover. reward, kl, length, entropy, grad_norm, eos_rate: means over the window.
    trainer_waiting, generator_waiting: shares of the window's wall-clock; without generators beside
    the trainer both are None, and generating and training are shares of the trainer's time.
    generated_per_second, trained_per_second: tokens. lag_rounds, lag_updates: samples by lag.
    scores: of the versions that are evaluated so far.
    """

    name: str
    folder: str
    state: str
    facts: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    stage: str = ""
    stage_done: int = 0
    stage_total: int = 0
    stage_seconds: float = 0.0
    stage_eta: float | None = None
    stage_numbers: Mapping[str, float] = field(default_factory=dict)
    phase: str = ""
    phase_seconds: float = 0.0
    rounds_done: int = 0
    rounds: int = 0
    elapsed: float = 0.0
    eta: float | None = None
    silent: float = 0.0
    window: int = 0
    generators: int = 0
    reward: float | None = None
    reward_last: float | None = None
    kl: float | None = None
    kl_last: float | None = None
    length: float | None = None
    eos_rate: float | None = None
    entropy: float | None = None
    grad_norm: float | None = None
    version: int | None = None
    lag_rounds: Mapping[int, int] = field(default_factory=dict)
    lag_updates: Mapping[int, int] = field(default_factory=dict)
    trainer_waiting: float | None = None
    generator_waiting: float | None = None
    generating: float | None = None
    training: float | None = None
    generated_per_second: float | None = None
    trained_per_second: float | None = None
    scores: Scores = field(default_factory=Scores)
    events: tuple[str, ...] = ()
    sample: NewestSample | None = None

    @property
    def is_running(self) -> bool:
        return self.state == "running"


class RunFollower:
    """Reads one run again and again. now: seconds since 1970; tests pass their own."""

    def __init__(self, folder: Path, now: Now = time.time) -> None:
        self.folder = folder
        self._now = now
        self._file = RowFile(folder)
        self._sample = LastSample(folder)
        self._scores = ScoreFile(folder)

    @property
    def rows(self) -> Sequence[RoundRow]:
        """All rounds up to now."""
        return self._file.read()

    def view(self, progress: Progress | None = None) -> LiveState:
        """The state now. progress: of a run of this very process, which knows it without a file."""
        name = self.folder.resolve().name
        try:
            manifest: Mapping[str, Any] = read_manifest(self.folder / MANIFEST)
            state = state_in(manifest)
        except Unreadable as error:
            return LiveState(name, str(self.folder), "unreadable", problem=str(error))
        rows = self.rows
        known = progress or (read_progress(self.folder) if state == "running" else None)
        current = known or Progress()
        return LiveState(
            name=name,
            folder=str(self.folder),
            state=state,
            facts=facts_of(manifest),
            problem=error_of(manifest),
            stage=current.stage,
            stage_done=current.done,
            stage_total=current.total,
            stage_seconds=current.seconds,
            stage_eta=current.left,
            stage_numbers=current.numbers,
            phase=current.phase,
            phase_seconds=current.phase_seconds,
            rounds_done=rows[-1].step + 1 if rows else 0,
            rounds=manifest.get("num_rounds") or 0,
            elapsed=elapsed(manifest, state, self._now()),
            silent=0.0 if progress else self._silent(),
            sample=self._sample.read(),
            scores=self._scores.read(),
            events=events(manifest, rows, current, self._file.num_damaged),
            **self._numbers(manifest, rows, state),
        )

    def _silent(self) -> float:
        """Seconds since the run last wrote a file that it writes all the time."""
        changed = [
            os.stat(self.folder / name).st_mtime
            for name in (PROGRESS, METRICS, MANIFEST)
            if (self.folder / name).exists()
        ]
        return max(0.0, self._now() - max(changed, default=self._now()))

    def _numbers(self, manifest: Mapping[str, Any], rows: Sequence[RoundRow], state: str) -> Any:
        window = RoundWindow(rows)
        generators = (manifest.get("settings") or {}).get("num_generators", 0)
        last = rows[-1] if rows else None
        version = last.get("version") if last else None
        return {
            "eta": self._eta(window, manifest, rows) if state == "running" else None,
            "window": window.num_rounds,
            "generators": generators,
            "reward_last": last.get("reward") if last else None,
            "kl_last": last.get("kl") if last else None,
            "version": None if version is None else int(version),
            "lag_rounds": window.lags("rounds"),
            "lag_updates": window.lags("updates"),
            "generated_per_second": window.per_second("generated"),
            "trained_per_second": window.per_second("trained"),
            **{name: window.mean(name) for name in MEANS},
            **shares(window, generators),
        }

    def _eta(
        self, window: RoundWindow, manifest: Mapping[str, Any], rows: Sequence[RoundRow]
    ) -> float | None:
        pace, total = window.seconds_per_round, int(manifest.get("num_rounds") or 0)
        if pace is None or not rows:
            return None
        left = total - rows[-1].step - 1
        if left <= 0:
            return None
        try:
            since = max(0.0, self._now() - os.stat(self.folder / METRICS).st_mtime)
        except OSError:
            since = 0.0
        # A round that takes longer than the others did still takes some time.
        return pace * (left - 1) + max(0.0, pace - since)


def view_of(folder: Path, now: Now = time.time) -> LiveState:
    return RunFollower(folder, now).view()
