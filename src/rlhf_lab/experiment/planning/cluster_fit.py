"""The options of a virtual cluster as a file of config group `cluster`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlhf_lab.experiment.planning.timing import (
    Measurement,
    measured,
    read_before_steps,
    spans_of,
)
from rlhf_lab.rollout.cluster.options import ClusterOptions, TakeOrder
from rlhf_lab.rollout.cluster.simulate import Work, simulate, virtual_mode
from rlhf_lab.runs.folder import METRICS, SCHEDULE, TIMELINE
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.timeline import TRAINER
from rlhf_lab.runs.verification import require_recorded
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import lag_in_rounds

Rows = Sequence[Mapping[str, Any]]
# So fast that it takes no time.
AT_ONCE = 1e12


def cluster_yaml(options: ClusterOptions, comments: Sequence[str]) -> str:
    """A file for conf/cluster of a project, chosen by its name. comments: its first lines, the
    first of which lists of options show."""
    values = asdict(options)
    lines = [f"{name}: {getattr(value, 'value', value)}" for name, value in values.items()]
    head = [*(f"# {comment}" for comment in comments), "defaults:"]
    return "\n".join([*head, "  - schema/cluster@_here_", "  - _self_", *lines, ""])


@dataclass(frozen=True)
class Fit:
    """options: of a cluster like the run's machine. steps: decoding steps of each chunk, by its
    number. lags: rounds that each chunk was old when the run trained on it. wall: seconds."""

    options: ClusterOptions
    steps: Mapping[int, int]
    prompt_tokens: int
    chunks_per_round: int
    max_staleness: int
    lags: Sequence[int]
    wall: float

    def predicted(self) -> tuple[list[int], float]:
        """Lags and seconds of a virtual cluster that writes the same lengths. A chunk is decoded
        in step, so it is one sequence as long as its longest response."""
        rounds = len(self.steps) // self.chunks_per_round
        work = Work(
            lambda number: (self.steps[number],),
            lambda _: self.prompt_tokens,
            max(self.steps.values()),
            self.chunks_per_round,
            rounds,
        )
        alone = replace(self.options, sequences=1)
        found = simulate(alone, virtual_mode(self.max_staleness), work)
        return found.lags, found.rounds[-1]["virtual_seconds/wall"]


def fitted(folder: Path) -> Fit:
    """The fit of a run with generators beside the trainer. Raises UserError for other runs, and for
    those whose schedule has no steps, or whose files were changed."""
    for name in (SCHEDULE, TIMELINE, METRICS):
        require_recorded(folder, folder / name)
    measurement = measured(folder)
    settings, rows = measurement.settings, read_rows(folder / SCHEDULE)
    if not settings.num_generators:
        raise UserError(
            f"{folder} generated in the trainer's own time: fit a run of mode=free or mode=async"
        )
    if any(row["dropped"] for row in rows):
        raise UserError(f"{folder} dropped samples: fit a run with mode.when_stale=wait")
    if not rows or any("steps" not in row for row in rows):
        raise UserError(
            f"{folder / SCHEDULE} has no steps, which runs record since mode=virtual exists: train "
            "again, a few rounds suffice"
        )
    steps = {row["chunk"]: max(1, row["steps"]) for row in rows}
    per_round = len(settings.chunk_rows)
    begin, step = decoding(chunk_seconds(folder, per_round), steps)
    prompts = read_before_steps(read_rows(folder / METRICS)[-1]) / len(rows)
    options = ClusterOptions(
        name="fitted",
        generators=settings.num_generators,
        sequences=max(settings.chunk_rows),
        step_seconds=step,
        step_seconds_per_sequence=0.0,
        prefill_tokens_per_second=prompts / begin if begin else AT_ONCE,
        round_seconds=trainer_seconds(measurement),
        train_tokens_per_second=AT_ONCE,
        sync_seconds=0.0,
        load_seconds=0.0,
        order=TakeOrder.submission,
        row_scale=1.0,
        length_scale=1.0,
        prompt_scale=1.0,
    )
    lags = [lag_in_rounds(row["round"], row["segments"][0][1]) for row in rows]
    return Fit(
        options,
        steps,
        round(prompts),
        per_round,
        settings.max_staleness,
        lags,
        measurement.wall,
    )


def trainer_seconds(measurement: Measurement) -> float:
    """Seconds of a round in the trainer's lane, waiting left out."""
    return (measurement.wall - measurement.trainer_wait) / len(measurement.rounds)


def chunk_seconds(folder: Path, per_round: int) -> dict[int, float]:
    """Seconds of generation and scoring of each chunk, by its number over the run."""
    seconds: dict[int, float] = {}
    for span in spans_of(folder):
        if span.is_generation and span.lane != TRAINER:
            assert span.chunk is not None, "generation belongs to a chunk"
            number = span.round * per_round + span.chunk
            seconds[number] = seconds.get(number, 0.0) + span.seconds
    return seconds


def decoding(seconds: Mapping[int, float], steps: Mapping[int, int]) -> tuple[float, float]:
    """Seconds before a chunk's first step, and of a step: least squares over all chunks, or all
    seconds by the steps where lengths differ too little to tell. The first chunk, which warms up,
    is left out where there are more than two."""
    numbers = sorted(seconds.keys() & steps.keys())
    numbers = numbers[1:] if len(numbers) > 2 else numbers
    lengths = np.array([steps[number] for number in numbers], dtype=float)
    took = np.array([seconds[number] for number in numbers])
    if np.ptp(lengths) > 0:
        slope, start = np.polyfit(lengths, took, 1)
        if slope > 0 and start > 0:
            return float(start), float(slope)
    return 0.0, float(took.sum() / lengths.sum())


def distance(lags: Sequence[int], others: Sequence[int]) -> float:
    """Total variation distance of two histograms of lags, from 0 to 1."""
    mine, theirs = Counter(lags), Counter(others)
    return 0.5 * sum(
        abs(mine[lag] / len(lags) - theirs[lag] / len(others)) for lag in mine | theirs
    )
