"""Base classes of tasks: rows that are generated, and rules that a task may or may not have."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.chat import form_of, require_arguments
from rlhf_lab.tasks.lazy_rows import LazyRows
from rlhf_lab.tasks.references import LongReferences
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split


@dataclass(frozen=True)
class TaskOptions(limits.Limited, key="task"):
    """A task for pretrained models, judged by another model unless it overrides `judge`.

    other_judges: the overrides that a task without a rule of its own suggests. shares_random:
    whether its environments draw from Python's and NumPy's global random numbers, so that one call
    is made at a time.
    """

    long_references: LongReferences = fields.long_references()
    has_rule: ClassVar[bool] = False
    other_judges: ClassVar[str] = ""
    shares_random: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_arguments(form_of(self).arguments)

    def tokenizer(self) -> Any | None:
        """The tokenizer for models that start from random weights; None: the model has its own."""
        return None

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """The score of a response. Raises UserError: this task has no rule."""
        name = getattr(self, "name", type(self).__name__)
        raise UserError(f"task={name} has no rule of its own: pass {self.other_judges}")


@dataclass(frozen=True)
class GeneratedTask(TaskOptions):
    """A task whose rows a program generates, each from the seed, its split and its number."""

    name: str = limits.name("")
    world_seed: int = fields.world_seed()
    train_size: int = fields.size(65536, "train")
    validation_size: int = fields.size(2048, "validation")
    test_size: int = fields.size(2048, "test")
    has_rule: ClassVar[bool] = True

    def examples(self, split: Split) -> Sequence[Example]:
        """The rows of a split, generated whenever they are read."""
        size: int = getattr(self, f"{split.value}_size")
        return LazyRows(size, functools.partial(self.row, split))

    @abstractmethod
    def row(self, split: Split, index: int) -> Example:
        """The row with this number, always the same."""


def require_placeholder(template: str, placeholder: str) -> None:
    """Refuse a prompt template without a field such as {question}."""
    if placeholder not in template:
        raise UserError(
            f"task.template={template!r} has no {placeholder}: add it where the text belongs"
        )
