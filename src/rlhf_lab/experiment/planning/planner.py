"""`rlhf-lab plan RUN`: what other settings would take, from the seconds that a run measured.

The model: a chunk takes as long as its rows, the reference as the round's rows, an update as the
rows trained on, everything else as much a round as it did. Generators beside the trainer are
taken not to slow it down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from rlhf_lab.experiment.planning import ideal_timeline, overlap_advice
from rlhf_lab.experiment.planning.settings import Settings, changed, grid
from rlhf_lab.experiment.planning.timing import Measurement, Round, measured
from rlhf_lab.runs.trackers.console import Console

# Chunks of a run that are placed one by one.
MOST_EXACT = 100_000
# Chunks of a round, where more of them are put together.
MOST_CHUNKS = 2_000
COLUMNS = (
    "settings",
    "rounds",
    "wall",
    "of predicted",
    "trainer waits",
    "generators wait",
    "lag mean",
    "lag max",
)


@dataclass(frozen=True)
class Prediction:
    """wall in seconds; waits as shares of the trainer's and of the generators' time."""

    rounds: int
    wall: float
    trainer_wait: float
    generator_wait: float
    lag_updates_mean: float
    lag_updates_max: int


def show(folder: Path, changes: Sequence[str], console: Console) -> None:
    """Print what a run took, and the prediction for every combination of KEY=VALUE,VALUE."""
    measurement = measured(folder)
    own = measurement.settings
    plans = {label: changed(own, change) for label, change in grid(changes)}
    console.table(f"plan from {folder}", COLUMNS, table(measurement, plans))
    if measurement.is_whole:
        print_overlap(measurement, console)


def report_overlap(folder: Path, console: Console) -> dict[str, float]:
    """Print who waited and what would help. Returns the seconds of the run and of its ideal
    timeline."""
    measurement = measured(folder)
    if not measurement.is_whole:
        return {}
    print_overlap(measurement, console)
    ideal = predict(measurement, measurement.settings).wall
    return {"wall_seconds": measurement.wall, "ideal_seconds": ideal}


def print_overlap(measurement: Measurement, console: Console) -> None:
    """How close a whole run came to the ideal timeline of its own seconds, and what would help."""
    own = measurement.settings
    work = work_of(measurement, own)
    found = overlap_advice.overlap(work, own.max_staleness, own.num_generators, measurement.wall)
    console.table(overlap_advice.TITLE, overlap_advice.COLUMNS, [found.cells])
    for sentence in found.advice:
        console.print(f"  advice: {sentence}")


def work_of(measurement: Measurement, settings: Settings) -> ideal_timeline.Work:
    """The measured seconds, repeated as often as needed and scaled to other settings."""
    measured_chunks = [seconds for round_ in measurement.rounds for seconds in round_.chunks]
    chunk_seconds = cycle(measured_chunks)
    num_rounds, chunk_rows = settings.recipe.num_rounds, settings.chunk_rows
    generate = [[rows * next(chunk_seconds) for rows in chunk_rows] for _ in range(num_rounds)]
    rounds = islice(cycle(measurement.rounds), num_rounds)
    return ideal_timeline.Work(generate, [trained_seconds(round_, settings) for round_ in rounds])


def trained_seconds(round_: Round, settings: Settings) -> float:
    """A measured round's seconds in the trainer's lane, scaled to other settings."""
    return round_.rows * settings.rows + round_.trained * settings.trained_rows + round_.other


def predict(measurement: Measurement, settings: Settings) -> Prediction:
    """The ideal timeline of the scaled seconds, and the lag that the settings prescribe."""
    num_rounds, optimizer_steps_per_round = (
        settings.recipe.num_rounds,
        settings.recipe.optimizer_steps_per_round,
    )
    found = totals_of(measurement, settings)
    lane_seconds = settings.num_generators * found.wall
    lag_sum, lag_most = lags(num_rounds, settings.max_staleness)
    last = optimizer_steps_per_round - 1
    return Prediction(
        rounds=num_rounds,
        wall=found.wall,
        trainer_wait=ideal_timeline.share(found.trainer_wait, found.wall),
        generator_wait=ideal_timeline.share(found.generator_wait, lane_seconds),
        lag_updates_mean=lag_sum / num_rounds * optimizer_steps_per_round + last / 2,
        lag_updates_max=lag_most * optimizer_steps_per_round + last,
    )


def totals_of(measurement: Measurement, settings: Settings) -> ideal_timeline.Totals:
    """Placed chunk by chunk, or by the rhythm that many rounds fall into."""
    num_rounds, generators = settings.recipe.num_rounds, settings.num_generators
    if num_rounds * settings.num_chunks <= MOST_EXACT:
        work = work_of(measurement, settings)
        timeline = ideal_timeline.ideal(work, settings.max_staleness, generators)
        return ideal_timeline.Totals(timeline.wall, timeline.trainer_wait, timeline.generator_wait)
    repeating = ideal_timeline.Repeating(
        settings.coarse_rows(MOST_CHUNKS),
        [seconds for round_ in measurement.rounds for seconds in round_.chunks],
        [trained_seconds(round_, settings) for round_ in measurement.rounds],
    )
    return ideal_timeline.totals(repeating, num_rounds, settings.max_staleness, generators)


def lags(num_rounds: int, max_staleness: int) -> tuple[int, int]:
    """Sum and largest of the rounds' lags: 0, 1, ... S, and S from then on."""
    rising = min(num_rounds, max_staleness)
    total = rising * (rising - 1) // 2 + (num_rounds - rising) * max_staleness
    return total, min(num_rounds - 1, max_staleness)


def table(measurement: Measurement, plans: Mapping[str, Settings]) -> list[list[str]]:
    """What the run took, and what the model predicts for it and for each plan."""
    own = measurement.settings
    rounds, wall = len(measurement.rounds), measurement.wall
    itself = predict(measurement, own)
    total = itself.rounds
    took = [
        "measured",
        str(rounds) if measurement.is_whole else f"{rounds} of {total}",
        overlap_advice.duration(wall),
        f"{ideal_timeline.share(wall, itself.wall):.0%}" if measurement.is_whole else "",
        percent(measurement.trainer_wait, wall * (own.num_generators > 0)),
        percent(measurement.generator_wait, wall * own.num_generators),
        "",
        "",
    ]
    rows = [predicted("as run, predicted", itself, own, itself.wall)]
    for label, settings in plans.items():
        rows.append(predicted(label, predict(measurement, settings), settings, itself.wall))
    return [took, *rows]


def predicted(label: str, found: Prediction, settings: Settings, base: float) -> list[str]:
    """A row of the table."""
    return [
        label,
        str(found.rounds),
        overlap_advice.duration(found.wall),
        f"{ideal_timeline.share(found.wall, base):.0%}",
        percent(found.trainer_wait, float(settings.num_generators > 0)),
        percent(found.generator_wait, float(settings.num_generators > 0)),
        f"{found.lag_updates_mean:.2f}",
        str(found.lag_updates_max),
    ]


def percent(part: float, whole: float) -> str:
    """A share in percent; a dash where nobody could wait."""
    return f"{part / whole:.0%}" if whole else "-"
