"""Answers whose steps are labelled right or wrong, from JSON lines, for process reward models.

A row has the fields prompt (text), steps (a list of texts that are the answer, one after another)
and labels (a number from 0, wrong, to 1, right, for each step).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhf_lab.rewards.steps_options import step_ends
from rlhf_lab.tasks.tables import JsonLines, RequiredFields, Row
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.text_frame import TextFrame

KEY = "reward_model.steps"


@dataclass(frozen=True)
class LabelledSteps:
    """tokens: of prompt, answer and end token. ends: the last token of each step among them."""

    tokens: tuple[int, ...]
    ends: tuple[int, ...]
    labels: tuple[float, ...]


def step_rows(path: Path) -> list[tuple[str, Row]]:
    """The rows of a file, each with its name in messages. Raises UserError for a bad one."""
    table = JsonLines(path, RequiredFields(("prompt",), ("prompt",), KEY, "add it"))
    named = [(table.row_name(index), row) for index, row in enumerate(table)]
    for name, row in named:
        require_labels(row, name)
    return named


def require_labels(row: Row, name: str) -> None:
    """Raise UserError for a row that has not one label for each of its steps."""
    steps, labels = row.get("steps"), row.get("labels")
    if not isinstance(steps, list) or not steps or not all(is_text(step) for step in steps):
        raise UserError(f"{name} has no list of texts in field 'steps': write one text for a step")
    if not isinstance(labels, list) or len(labels) != len(steps):
        raise UserError(
            f"{name} has no list of {len(steps)} numbers in field 'labels', one for each of its "
            "steps: write it, or delete the row"
        )
    for label in labels:
        is_number = isinstance(label, int | float) and math.isfinite(label)
        if not is_number or not 0 <= label <= 1:
            raise UserError(
                f"{name} has the label {label!r}: write a number from 0 (wrong) to 1 (right)"
            )


def is_text(step: Any) -> bool:
    """Whether it has a character that is not white space."""
    return isinstance(step, str) and bool(step.strip())


def labelled_steps(row: Row, name: str, tokenizer: Any, separator: str) -> LabelledSteps:
    """The row as tokens, with steps that end where `reward=steps` finds their ends.

    Raises UserError where it would find other steps.
    """
    frame = TextFrame(tokenizer)
    prompt, steps = frame.row(row["prompt"]), row["steps"]
    answer = [*frame.inside("".join(steps)), frame.end]
    ends = step_ends(answer, frame.text, separator, len(answer))
    if len(ends) != len(steps):
        raise UserError(
            f"{name} has {len(steps)} steps, but its answer has {len(ends)} that end in "
            f"{separator!r}: end every step with it and have it nowhere else, or name another by "
            "reward_model.step_separator"
        )
    places = tuple(len(prompt) + end for end in ends)
    return LabelledSteps((*prompt, *answer), places, tuple(map(float, row["labels"])))
