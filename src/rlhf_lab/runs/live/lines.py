"""Plain lines about a run for logs and pipes, and when one is due; short texts of durations,
numbers and shares, and sparklines.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from rlhf_lab.runs.live.files import Scores
from rlhf_lab.runs.live.progress import TRAIN, Progress
from rlhf_lab.runs.live.state import LiveState
from rlhf_lab.runs.output import printable
from rlhf_lab.types.data import Clock

BARS = "▁▂▃▄▅▆▇█"
# For terminals without UTF-8.
ASCII_BARS = "_.-=+*%#"
# Values of a histogram that have a bar of their own; more share bars.
MOST_BARS = 16
# Seconds without a line.
LINE_SECONDS = 5.0
# A log of many hours needs no line every five seconds, but none may be silent for minutes.
LINE_SHARE = 0.05
SLOWEST_SECONDS = 60.0
PHASES = {
    "start": "starting the generators",
    "take": "waiting for rollouts",
    "reference": "reading log-probs",
    "update": "updating",
    "probe": "measuring off-policy gaps",
    "sync": "publishing weights",
    "track": "writing metrics",
    "save": "saving weights",
    "checkpoint": "saving a checkpoint",
}
# Between two phases.
PREPARING = "preparing"
# Without generators beside the trainer.
ALONE = {"take": "generating", "start": "starting"}
# A phase is named in lines once it has lasted so long.
LONG_SECONDS = 2.0


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
    """`4 ▁▃█▂ 7`: a bar per whole number between the smallest and the largest, which are beside
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


class Pace:
    """Decides when a line is due: every 5% of the time passed, between 5 and 60 seconds. passed:
    seconds up to now."""

    def __init__(self, clock: Clock, passed: float = 0.0) -> None:
        self._clock = clock
        self._began = self._last = clock() - passed

    def is_due(self) -> bool:
        now = self._clock()
        wait = min(SLOWEST_SECONDS, max(LINE_SECONDS, LINE_SHARE * (now - self._began)))
        return now - self._last >= wait

    def printed(self) -> None:
        """A line was printed just now."""
        self._last = self._clock()


def print_timed(lines: Iterable[str]) -> None:
    for text in lines:
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {printable(text)}\n")
    sys.stdout.flush()


def stage_line(progress: Progress) -> str:
    """`sft nano_s: 20/400, 20s elapsed, ETA 6m20s  loss 1.95`; of a phase without a stage
    `loading the policy, 20s elapsed`."""
    if not progress.stage:
        seconds = progress.phase_seconds if progress.phase else progress.seconds
        return f"{phase_name(progress.phase) or PREPARING}, {seconds_text(seconds)} elapsed"
    times = f"{seconds_text(progress.seconds)} elapsed"
    if progress.left:
        times += f", ETA {seconds_text(progress.left)}"
    head = f"{progress.stage}: {progress.done}/{progress.total}"
    phase = phase_text(phase_name(progress.phase), progress.phase_seconds)
    return "  ".join(filter(None, [f"{head}, {times}", numbers_text(progress.numbers), phase]))


def run_line(state: LiveState) -> str:
    """A run in one line: the stage; of a training its rounds, ETA and what matters."""
    has_words = state.stage or state.phase or not state.rounds_done
    if state.is_running and state.stage != TRAIN and has_words:
        return stage_line(
            Progress(
                state.stage,
                state.stage_done,
                state.stage_total,
                state.stage_seconds if state.stage else state.elapsed,
                state.stage_numbers,
                state.phase,
                state.phase_seconds,
            )
        )
    parts = [f"round {state.rounds_done}/{state.rounds}", f"{seconds_text(state.elapsed)} elapsed"]
    if state.eta is not None:
        parts.append(f"ETA {seconds_text(state.eta)}")
    name = phase_name(state.phase, state.generators) if state.is_running else ""
    phase = phase_text(name, state.phase_seconds)
    line = "  ".join(filter(None, [", ".join(parts), measures(state), phase]))
    return f"{state.stage or state.state}: {line}" if state.is_running else f"{state.state}: {line}"


def measures(state: LiveState) -> str:
    """`reward 0.512  KL 3.1  win-rate 0.61 (version 8)  lag 5 updates  waiting trainer 2%`."""
    parts = []
    if state.reward is not None:
        parts.append(f"reward {number_text(state.reward)}")
    if state.kl is not None:
        parts.append(f"KL {number_text(state.kl)}")
    if state.scores.name:
        parts.append(f"{state.scores.name} {score_text(state.scores)}")
    if state.lag_updates:
        parts.append(f"lag {number_text(mean_lag(state.lag_updates))} updates")
    if state.trainer_waiting is not None and state.generator_waiting is not None:
        trainer, generator = share_text(state.trainer_waiting), share_text(state.generator_waiting)
        parts.append(f"waiting trainer {trainer} generator {generator}")
    # Without generators beside the trainer, what the trainer did.
    elif state.generating is not None and state.training is not None:
        generating, training = share_text(state.generating), share_text(state.training)
        parts.append(f"generating {generating} training {training}")
    if state.generated_per_second is not None:
        parts.append(f"{count_text(state.generated_per_second)} tokens/s")
    return "  ".join(parts)


def score_text(scores: Scores) -> str:
    """`0.654 (version 8)`, of the newest version that is evaluated."""
    return f"{number_text(scores.values[-1])} (version {scores.versions[-1]})"


def mean_lag(counts: Mapping[int, int]) -> float:
    """The mean of a histogram."""
    total = sum(counts.values())
    return sum(lag * count for lag, count in counts.items()) / total if total else 0.0


def phase_name(phase: str, generators: int = 1) -> str:
    """A phase in words. generators: their number beside the trainer; without any, the trainer
    generates while it takes its rollouts."""
    name = PHASES.get(phase, phase)
    return name if generators else ALONE.get(phase, name)


def phase_text(name: str, seconds: float) -> str:
    """`updating for 14s`; "" for a phase that is short so far."""
    return f"{name} for {seconds_text(seconds)}" if name and seconds >= LONG_SECONDS else ""
