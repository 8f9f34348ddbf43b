"""Check each run by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rlhf_lab.runs.metric_names import FIRST_ROUNDS, MOSTLY, TIED, ZEROED
from rlhf_lab_analysis.sources.axes import number
from rlhf_lab_analysis.sources.conditions import TUNING, role_of
from rlhf_lab_analysis.sources.record import Record, look_up
from rlhf_lab_analysis.tables.frames import Placed, metric_names

# Metrics that are shares: from 0 to 1, where percents would be mixed in.
SHARES = ("win_rate", "win_rate_low", "win_rate_high", "tie_rate", "eos_rate", "accuracy/mean")
DONE = ("finished", "running")


def check_seed(run: Placed) -> Iterator[str]:
    """Report a run without a seed."""
    if run.place.seed is None:
        yield "it has no seed: no other run can be paired with it, and a repetition looks the same"


def check_tuning(run: Placed) -> Iterator[str]:
    """Report a run by which a search chose its setting: the choice favours its seed."""
    if role_of(run.record) == TUNING:
        done, planned = rounds_of(run.record), run.record.facts.planned_rounds
        yield (
            f"seed {run.place.seed} tuned a search ({done} of {planned} rounds): it is compared "
            "with no run on test seeds"
        )


def check_end(run: Placed) -> Iterator[str]:
    """Report fewer rounds than planned, or a run that has not finished. A tuning run that its
    search paused is complete."""
    record, planned = run.record, run.record.facts.planned_rounds
    done = rounds_of(record)
    is_paused = record.facts.state == "paused" and role_of(record) == TUNING
    if record.facts.job_type == "evaluate" or is_paused:
        return
    if planned is not None and done < planned:
        yield f"{done} of {planned} rounds were recorded (state {record.facts.state})"
    elif record.facts.state not in (*DONE, "unknown"):
        yield f"its state is {record.facts.state}"
    elif record.facts.state == "running":
        yield "it is still running: its last values are not its end"


def rounds_of(record: Record) -> int:
    """How many rounds a run made: its own count, else the number of recorded rounds."""
    counted = number(record.rounds[-1], "total/rounds") if record.rounds else None
    return int(counted) if counted is not None and math.isfinite(counted) else len(record.rounds)


def check_zeroed(run: Placed) -> Iterator[str]:
    """Report a correction that left most tokens of a round out."""
    rounds = run.record.rounds
    found = [share for row in rounds if (share := number(row, ZEROED) or 0.0) > MOSTLY]
    if found:
        yield (
            f"the correction gave weight 0 to more than half of the tokens in {len(found)} of "
            f"{len(rounds)} recorded rounds, at most to {max(found):.0%}"
        )


def check_tied(run: Placed) -> Iterator[str]:
    """Report rewards that tell no samples of a prompt apart, in any recorded round."""
    rounds = run.record.rounds
    size = look_up(run.record.config, "run.group_size")
    has_groups = isinstance(size, int) and size > 1
    if has_groups and len(rounds) >= FIRST_ROUNDS and all(number(r, TIED) == 1 for r in rounds):
        yield (
            f"all groups of all {len(rounds)} recorded rounds have equal rewards ({TIED}): the "
            "reward preferred no sample"
        )


def check_finite(run: Placed) -> Iterator[str]:
    """Report metrics that are NaN or infinite at some point, and where first."""
    for rows, of in ((run.record.rounds, "points"), (run.record.evals, "versions")):
        bad: dict[str, list[int]] = {}
        for position, row in enumerate(rows, start=1):
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    bad.setdefault(name, []).append(position)
        for name, positions in bad.items():
            share = f"{len(positions)} of {len(rows)} {of}"
            yield f"{name} is not finite in {share}, first in number {positions[0]}"


def is_share(name: str) -> bool:
    """Whether a metric is a share; the gap between two of them may be negative."""
    return name.endswith(SHARES) and not name.startswith("gap/")


def check_shares(run: Placed) -> Iterator[str]:
    """Report shares below 0 or above 1."""
    worst: dict[str, float] = {}
    names = [name for held in metric_names(run.record) for name in held if is_share(name)]
    for row in (*run.record.rounds, *run.record.evals):
        for name in names:
            value = number(row, name)
            if value is not None and not 0 <= value <= 1 and math.isfinite(value):
                worst[name] = max(abs(value), worst.get(name, 0.0))
    for name, value in worst.items():
        yield f"{name} goes to {value:g}, but is a share from 0 to 1: are these percents?"
