"""What environments answer, checked: errors name the task, the row and the turn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real

from rlhf_lab.tasks.environment import Environment, Turn
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

# Reserved among the metrics `episode/*`.
OWN_NUMBERS = {
    *("turns", "done", "late", "observed_tokens", "virtual_seconds_tools"),
    *("lag_first_turn", "lag_last_turn"),
}


@contextmanager
def named(what: str) -> Iterator[None]:
    """What an environment raises gets a note of where that was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by {what}")
        raise


def place_of(name: str, example: Example, turn: int) -> str:
    """What an error is about."""
    return f"task={name}, row {example.uid}, turn {turn}"


def first_of(environment: Environment, example: Example, seed: int, name: str) -> str:
    """What the environment shows before the first action. Raises UserError if it is no text."""
    place = place_of(name, example, 1)
    with named(f"reset of the environment of {place}"):
        first = environment.reset(example, seed)
    if not isinstance(first, str):
        raise UserError(
            f"{place}: reset returned {type(first).__name__}: return the text "
            "that the policy reads before its first action, '' for none"
        )
    return first


def turn_of(environment: Environment, action: str, finished: bool, place: str) -> Turn:
    """What the environment makes of an action. Raises UserError if it is no turn."""
    with named(f"the environment of {place}"):
        turn: object = environment.step(action, finished)
    if not isinstance(turn, Turn):
        raise UserError(
            f"{place}: step returned {type(turn).__name__}: return rlhf_lab.tasks.environment.Turn"
        )
    if not isinstance(turn.observation, str):
        raise UserError(f"{place}: the observation is no text: {turn.observation!r}")
    if own := OWN_NUMBERS & set(turn.info):
        raise UserError(
            f"{place}: info has {min(own)}, which every episode has: choose another name"
        )
    for name, value in (("reward", turn.reward), *turn.info.items()):
        if not isinstance(value, Real) or not math.isfinite(value):
            raise UserError(f"{place}: {name} is {value!r}: pass a finite number")
    return turn
