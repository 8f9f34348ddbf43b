"""`task=ifeval`: the published rows of IFEval and IFBench, checked by programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.constraints.constraint_types import Score, Scoring, score
from rlhf_lab.tasks.constraints.published import (
    CHECKS,
    PublishedConstraint,
    published_constraint,
)
from rlhf_lab.tasks.own_prompts import OwnPrompts
from rlhf_lab.tasks.prompt_columns import Columns
from rlhf_lab.tasks.tables import Row
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split

NAMES, ARGUMENTS = "instruction_id_list", "kwargs"


class Unchecked(StrEnum):
    """What happens to rows with a constraint that has no check here. refuse: an error. drop: they
    are left out."""

    refuse = "refuse"
    drop = "drop"


@dataclass(frozen=True)
class ConstraintColumns(Columns):
    """The columns of the published rows. unchecked: of rows with a constraint without a check."""

    unchecked: Unchecked = Unchecked.refuse

    def example(self, row: Row, uid: str) -> Example:
        """The example of a row, with its constraints hidden. Raises UserError for a row that is
        not of the published form, or whose constraints cannot be checked."""
        read = super().example(row, uid)
        names, arguments = (read.hidden[name] for name in (NAMES, ARGUMENTS))
        if not (isinstance(names, list) and isinstance(arguments, list)) or not names:
            raise UserError(f"{uid}: {NAMES} and {ARGUMENTS} are not lists: correct the row")
        if len(names) != len(arguments):
            raise UserError(
                f"{uid} has {len(names)} entries in {NAMES} and {len(arguments)} in {ARGUMENTS}: "
                "correct the row"
            )
        if without := [name for name in names if name not in CHECKS]:
            if self.unchecked is Unchecked.refuse:
                raise UserError(
                    f"{uid} has the constraint {without[0]!r}, which has no check here "
                    "(docs/instructions.md lists them): pass task.unchecked=drop to leave such "
                    "rows out"
                )
            return Example(uid, read.prompt, "", {"unchecked": without}, read.messages)
        hidden = [hidden_of(*pair, uid) for pair in zip(names, arguments, strict=True)]
        return Example(uid, read.prompt, "", {"constraints": hidden}, read.messages)


@dataclass(frozen=True)
class IFEval(OwnPrompts):
    """Published rows of IFEval (arXiv:2311.07911) or IFBench (arXiv:2507.02833): fields prompt,
    instruction_id_list and kwargs."""

    name: str = limits.name("ifeval")
    hidden: list[str] = limits.collection(
        lambda: [NAMES, ARGUMENTS],
        about="Columns of the constraints: their names and their arguments.",
    )
    score: Score = fields.score_field()
    scoring: Scoring = fields.scoring_field()
    unchecked: Unchecked = limits.option(
        Unchecked.refuse,
        about="Whether rows with a constraint that has no check here are refused or left out.",
    )
    max_response_tokens: int = fields.response_tokens(512)
    has_rule: ClassVar[bool] = True
    is_verifiable: ClassVar[bool] = True

    @property
    def columns(self) -> Columns:
        return ConstraintColumns(
            self.prompt,
            "",
            (NAMES, ARGUMENTS),
            self.template,
            self.chat == "true",
            unchecked=self.unchecked,
        )

    def examples(self, split: Split) -> Sequence[Example]:
        """The rows of a split whose constraints can be checked."""
        rows = super().examples(split)
        if self.unchecked is Unchecked.refuse:
            return rows
        found = [example for example in rows if "unchecked" not in example.hidden]
        if not found:
            raise UserError(
                f"task.path={self.path}: no row of the {split.value} split has only constraints "
                "with a check here"
            )
        return found

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """The score of the text by its constraints; an empty text satisfies none."""
        constraints = [PublishedConstraint(**row) for row in example.hidden["constraints"]]
        return score(constraints, text, self.score, self.scoring)


def hidden_of(name: str, arguments: Any, place: str) -> dict[str, Any]:
    """A constraint as an example hides it."""
    if not isinstance(arguments, Mapping):
        raise UserError(f"{place}: an entry of {ARGUMENTS} is not an object: correct the row")
    constraint = published_constraint(name, arguments, place)
    return {"name": constraint.name, "arguments": dict(constraint.arguments)}
