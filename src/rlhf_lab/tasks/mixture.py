"""`task=mixture`: several tasks in one run, in fixed shares (arXiv:2411.15124)."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.examples import LazyExamples, as_examples
from rlhf_lab.tasks.references import LongReferences
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import MIXED_TASK, Example, Split


@dataclass(frozen=True)
class Mixture(Task):
    """Several tasks in one run; add one with +task/schema@task.tasks.NAME=OPTION."""

    name: str = limits.name("mixture")
    tasks: dict[str, Any] = limits.collection(
        dict, about="The tasks that are mixed, by a name of your choice."
    )
    weights: dict[str, float] = limits.collection(
        dict,
        about="Weights of tasks, by their names; shares of prompts are proportional to them.",
        above=0,
        max=limits.LARGEST_SCORE,
    )
    long_references: LongReferences = fields.long_references()
    train_size: int = fields.size(65536, "train")
    validation_size: int = fields.size(2048, "validation")
    test_size: int = fields.size(2048, "test")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tasks or set(self.weights) != set(self.tasks):
            raise UserError(
                f"task.weights={self.weights} with task.tasks of {sorted(self.tasks)}: give every "
                "task one weight; add tasks with +task/schema@task.tasks.NAME=OPTION"
            )
        for name, task in self.tasks.items():
            refuse_unmixable(name, task)

    @property
    def max_prompt_tokens(self) -> int:
        return max(int(task.max_prompt_tokens) for task in self.tasks.values())

    @property
    def max_response_tokens(self) -> int:
        return max(int(task.max_response_tokens) for task in self.tasks.values())

    @property
    def has_rule(self) -> bool:
        return all(task.has_rule for task in self.tasks.values())

    @property
    def has_references(self) -> bool:
        return all(task.has_references for task in self.tasks.values())

    @property
    def warning(self) -> str:
        return "; ".join(task.warning for task in self.tasks.values() if task.warning)

    def require_usable(self, key: str) -> None:
        """Raise UserError where a task lacks what it needs."""
        for name, task in self.tasks.items():
            task.require_usable(f"{key}.tasks.{name}")

    def content(self) -> dict[str, str]:
        return {
            f"{name}/{file}": digest
            for name, task in self.tasks.items()
            for file, digest in task.content().items()
        }

    def shorter(self, example: Example, excess: int) -> Example | None:
        found: Example | None = self.tasks[example.hidden[MIXED_TASK]].shorter(example, excess)
        # A task need not keep hidden values that are not its own.
        return found and replace(found, hidden={**example.hidden, **found.hidden})

    @property
    def is_verifiable(self) -> bool:
        return all(task.is_verifiable for task in self.tasks.values())

    def examples(self, split: Split) -> Sequence[Example]:
        """The rows of all tasks, interleaved; a task with too few rows begins anew."""
        rows = {name: self.tasks[name].examples(split) for name in self.tasks}
        weights = tuple(self.weights[name] for name in rows)
        return MixedRows(rows, weights, getattr(self, f"{split.value}_size"))

    def tokenizer(self) -> Any | None:
        """The tokenizer that all tasks share; None where they differ."""
        found = [task.tokenizer() for task in self.tasks.values()]
        return found[0] if all(one is found[0] for one in found) else None

    def judge(self, example: Example, text: str, finished: bool) -> float:
        task = self.tasks[example.hidden[MIXED_TASK]]
        return float(task.judge(example, text, finished))


def refuse_unmixable(name: str, task: Any) -> None:
    """Refuse what a mixture cannot hold. Raises UserError."""
    place = f"task.tasks.{name}"
    if task.is_episodic:
        raise UserError(
            f"{place}={task.name}: a mixture has no episodes of several turns; pass "
            f"task={task.name} by itself"
        )
    for key in ("drop_long", "chat_template", "chat_arguments", "chat"):
        if getattr(task, key):
            raise UserError(
                f"{place}.{key}={getattr(task, key)}: a mixture reads plain prompts of any length "
                "that fits; leave it out"
            )
    if (long := task.long_references) is not LongReferences.cut_with_end:
        raise UserError(
            f"{place}.long_references={long}: the tasks of a mixture have it in "
            "common; pass task.long_references instead"
        )


class MixedRows(LazyExamples):
    """Row p is of the p-th task of `interleaved`, whose rows come in their own order."""

    def __init__(
        self, rows: Mapping[str, Sequence[Example]], weights: tuple[float, ...], size: int
    ) -> None:
        super().__init__(size, self._row)
        self._weights = weights
        self._rows = rows
        self._names = list(rows)
        self._task, self._number = interleaved(weights, size)

    def _row(self, index: int) -> Example:
        name = self._names[int(self._task[index])]
        rows = self._rows[name]
        again, number = divmod(int(self._number[index]), len(rows))
        row = rows[number]
        uid = f"{name}/{row.uid}" + (f"#{again}" if again else "")
        return replace(row, uid=uid, hidden={**row.hidden, MIXED_TASK: name})

    def keeping(self, columns: Collection[str] | None) -> MixedRows:
        """The same rows, whose examples have these columns of those that their tasks know."""
        rows = {name: as_examples(part).keeping(columns) for name, part in self._rows.items()}
        return MixedRows(rows, self._weights, len(self))

    def order(self, rng: np.random.Generator) -> np.ndarray:
        """A permutation that keeps the task of every position."""
        order = np.arange(len(self))
        for task in range(len(self._names)):
            places = np.flatnonzero(self._task == task)
            order[places] = rng.permutation(places)
        return order


@functools.lru_cache(maxsize=8)
def interleaved(weights: tuple[float, ...], size: int) -> tuple[np.ndarray, np.ndarray]:
    """The task of each position, and its number among that task's positions.

    The k-th prompt of a task with share w is due at (k + 1/2) / w, and prompts come in the order in
    which they are due. Of T tasks, each has w * m of the first m, within (1 + w * T) / 2.
    """
    shares = np.array(weights) / sum(weights)
    counts = [math.ceil(share * size + len(shares)) + 1 for share in shares]
    number = np.concatenate([np.arange(count) for count in counts])
    task = np.repeat(np.arange(len(shares)), counts)
    first = np.argsort((number + 0.5) / shares[task], kind="stable")[:size]
    return task[first], number[first]
