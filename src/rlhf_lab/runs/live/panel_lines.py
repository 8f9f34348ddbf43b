"""What the panels of a run show: lines of the generators and of the trainer."""

from __future__ import annotations

from collections.abc import Sequence

from rlhf_lab.runs.live.lines import mean_lag, score_text
from rlhf_lab.runs.live.rows import Row
from rlhf_lab.runs.live.state import LiveState
from rlhf_lab.runs.live.texts import (
    count_text,
    histogram_text,
    number_text,
    share_text,
)

# Narrower terminals get the panels below each other.


# Name, value with its unit, and the values of a curve.
Line = tuple[str, str, Sequence[float]]


def generator_lines(state: LiveState, rows: Sequence[Row], bars: str) -> list[Line]:
    """How fast samples come, how long they are, and how old when they are trained on."""
    lines: list[Line] = []
    if state.generated_per_second is not None:
        lines.append(("generates", f"{count_text(state.generated_per_second)} tokens/s", ()))
    lines.append(share_line("waits", state.generator_waiting, state))
    lines.append(share_line("busy", state.generating, state))
    if state.length is not None:
        lines.append(("length", f"{number_text(state.length)} tokens", curve(rows, "length")))
    if state.eos_rate is not None:
        lines.append(("ended", f"{share_text(state.eos_rate)} by end token", ()))
    for name, counts in (("rounds", state.lag_rounds), ("updates", state.lag_updates)):
        if counts:
            mean = f"{number_text(mean_lag(counts))} {name}"
            lines.append(("lag", f"{mean}  {histogram_text(counts, bars)}", ()))
    if state.version is not None:
        lines.append(("weights", f"version {state.version}", ()))
    return [line for line in lines if line[1]] or [("", "no round yet", ())]


def trainer_lines(state: LiveState, rows: Sequence[Row]) -> list[Line]:
    """What is learnt, and how much of the time is spent on it."""
    lines: list[Line] = []
    for name, value, last, key in (
        ("reward", state.reward, state.reward_last, "reward"),
        ("KL", state.kl, state.kl_last, "kl"),
    ):
        if value is not None and last is not None:
            text = f"{number_text(value)} (last {number_text(last)})"
            lines.append((name, text, curve(rows, key)))
    if state.scores.name:
        values = state.scores.values
        lines.append(
            (state.scores.name, score_text(state.scores), values if len(values) > 1 else ())
        )
    if state.entropy is not None:
        text = f"{number_text(state.entropy)} nats/token"
        lines.append(("entropy", text, curve(rows, "entropy")))
    if state.grad_norm is not None:
        text = number_text(state.grad_norm)
        lines.append(("grad norm", text, curve(rows, "grad_norm")))
    if state.trained_per_second is not None:
        lines.append(("trains", f"{count_text(state.trained_per_second)} tokens/s", ()))
    lines.append(share_line("waits", state.trainer_waiting, state))
    lines.append(share_line("busy", state.training, state))
    return [line for line in lines if line[1]] or [("", "no round yet", ())]


def share_line(name: str, share: float | None, state: LiveState) -> Line:
    """`waits  53% of 10 rounds`; without a value where the share is unknown."""
    return (name, "" if share is None else f"{share_text(share)} of {state.window} rounds", ())


def curve(rows: Sequence[Row], name: str) -> list[float]:
    """A number of every round that has it; [] for a single one."""
    values = [value for row in rows if (value := row.get(name)) is not None]
    return values if len(values) > 1 else []
