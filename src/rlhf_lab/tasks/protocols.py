"""What a task offers: prompts, references and a rule; and what some tasks can do besides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from rlhf_lab.types.samples import Example, Split


class Task(Protocol):
    """Prompts, reference answers, and a rule that scores answers if `has_rule`.

    tokenizer(): for models trained from scratch; None if the task has none. judge: the rule's score
    of one answer; finished: whether the end token was written. Without a rule, a reward model
    scores.
    """

    @property
    def name(self) -> str: ...

    @property
    def max_prompt_tokens(self) -> int: ...

    @property
    def max_response_tokens(self) -> int: ...

    @property
    def has_rule(self) -> bool: ...

    def examples(self, split: Split) -> Sequence[Example]: ...

    def tokenizer(self) -> Any | None: ...

    def judge(self, example: Example, text: str, finished: bool) -> float: ...


@runtime_checkable
class Shortening(Protocol):
    """A task that can shorten a prompt that is too long."""

    def shorter(self, example: Example, excess: int) -> Example | None:
        """The next shorter form, for a prompt `excess` tokens too long; None if there is none."""
        ...


@runtime_checkable
class Referencing(Protocol):
    """A task that may have no reference answers: those of its examples are then empty."""

    @property
    def has_references(self) -> bool: ...


@runtime_checkable
class Columned(Protocol):
    """A split of rows with columns, which examples keep where a reward function asks for them."""

    def keeping(self, columns: Collection[str] | None) -> Sequence[Example]:
        """The same rows, whose examples have these columns; None for all."""
        ...


@runtime_checkable
class Edited(Protocol):
    """A task whose rows users edit: what is made of them is made anew when they change."""

    def content(self) -> dict[str, str]:
        """A digest of each local file that rows are read from."""
        ...


@runtime_checkable
class Explained(Protocol):
    """A task that knows what the columns of its rows are for."""

    def uses(self) -> dict[str, str]:
        """What each column that is used is used for."""
        ...

    def notes(self) -> list[str]:
        """What else a user should know of its rows."""
        ...


@runtime_checkable
class Verifiable(Protocol):
    """A task with right and wrong answers: if `is_verifiable`, scores from 1 on are right."""

    @property
    def is_verifiable(self) -> bool: ...


@runtime_checkable
class Answering(Protocol):
    """A task with final answers, by which samples of a prompt can take a majority vote."""

    def answer(self, text: str) -> str | None:
        """The final answer in a text; None if it has none."""
        ...

    def is_same_answer(self, one: str, other: str) -> bool:
        """Whether two answers count as the same vote."""
        ...
