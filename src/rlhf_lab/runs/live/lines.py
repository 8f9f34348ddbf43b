"""Plain lines about a run for logs and pipes, and when one is due."""

from __future__ import annotations

from collections.abc import Mapping

from rlhf_lab.runs.live.progress import TRAIN, Progress
from rlhf_lab.runs.live.scores import Scores
from rlhf_lab.runs.live.state import LiveState
from rlhf_lab.runs.live.texts import count_text, number_text, numbers_text, seconds_text, share_text
from rlhf_lab.types.data import Clock

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
    if waits := waiting_text(state):
        parts.append(waits)
    if state.generated_per_second is not None:
        parts.append(f"{count_text(state.generated_per_second)} tokens/s")
    return "  ".join(parts)


def score_text(scores: Scores) -> str:
    """`0.654 (version 8)`, of the newest version that is evaluated."""
    return f"{number_text(scores.values[-1])} (version {scores.versions[-1]})"


def waiting_text(state: LiveState) -> str:
    """Shares of the window's time; without generators beside the trainer, what the trainer did."""
    if state.trainer_waiting is not None and state.generator_waiting is not None:
        trainer, generator = share_text(state.trainer_waiting), share_text(state.generator_waiting)
        return f"waiting trainer {trainer} generator {generator}"
    if state.generating is not None and state.training is not None:
        return f"generating {share_text(state.generating)} training {share_text(state.training)}"
    return ""


def mean_lag(counts: Mapping[int, int]) -> float:
    """The mean of a histogram."""
    total = sum(counts.values())
    return sum(lag * count for lag, count in counts.items()) / total if total else 0.0


def phase_name(phase: str, generators: int = 1) -> str:
    """A phase in words. generators: how many stand beside the trainer; without any, the trainer
    generates while it takes its rollouts."""
    name = PHASES.get(phase, phase)
    return name if generators else ALONE.get(phase, name)


def phase_text(name: str, seconds: float) -> str:
    """`updating for 14s`; "" for a phase that is short so far."""
    return f"{name} for {seconds_text(seconds)}" if name and seconds >= LONG_SECONDS else ""
