"""Base classes of tasks: what a task offers, with defaults for what it may leave out."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from rlhf_lab.tasks import fields
from rlhf_lab.tasks.chat import AUTO, ChatForm, require_arguments
from rlhf_lab.tasks.environment import Environment
from rlhf_lab.tasks.examples import LazyExamples
from rlhf_lab.tasks.references import LongReferences
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Split


class Task(limits.OptionGroup, ABC, key="task"):
    """Prompts, reference answers, and a rule that scores answers if `has_rule`.

    What a task overrides, it can do: prompts begin episodes if it has `environment`, samples of a
    prompt take a majority vote if it has `answer`. The attributes are options where a task has
    fields of these names:

    chat, template, chat_template, chat_arguments: how prompts become chats (see `ChatForm`).
    observation_role: the role of an observation's message in a chat. drop_long: prompts that are
    too long are left out. long_references: what becomes of references that are. tasks: those of a
    mixture, by name. max_turns: of an episode, whose tokens of the policy max_response_tokens
    bounds; max_turn_tokens: of the policy in one turn, with the end token; max_observation_tokens:
    of one observation.

    other_judges, other_references: the overrides that a task without a rule or without references
    suggests.
    """

    name: str
    chat: bool | str = ""
    template: str = ""
    chat_template: str = ""
    chat_arguments: Mapping[str, Any] = MappingProxyType({})
    observation_role: str = "user"
    drop_long: bool = False
    long_references: LongReferences = LongReferences.cut_with_end
    tasks: Mapping[str, Any] = MappingProxyType({})
    max_turns: int = 0
    max_turn_tokens: int = 0
    max_observation_tokens: int = 0
    other_judges: ClassVar[str] = ""
    other_references: ClassVar[str] = "another task"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_arguments(self.chat_arguments)
        bounds = self.max_turns, self.max_turn_tokens, self.max_observation_tokens
        if self.is_episodic and not all(bounds):
            raise UserError(
                f"task={self.name} has an environment: give it the fields max_turns, "
                "max_turn_tokens and max_observation_tokens"
            )

    @property
    @abstractmethod
    def max_prompt_tokens(self) -> int: ...

    @property
    @abstractmethod
    def max_response_tokens(self) -> int: ...

    @abstractmethod
    def examples(self, split: Split) -> Sequence[Example]:
        """The rows of a split."""

    def tokenizer(self) -> Any | None:
        """The tokenizer for models that start from random weights; None: the model has its own."""
        return None

    @property
    def has_rule(self) -> bool:
        """Whether `judge` scores; a reward model does otherwise."""
        return False

    def judge(self, example: Example, text: str, finished: bool) -> float:
        """The rule's score of an answer. finished: whether the end token was written. Raises
        UserError where the task has no rule."""
        raise UserError(f"task={self.name} has no rule of its own: pass {self.other_judges}")

    @property
    def is_verifiable(self) -> bool:
        """Whether answers are right or wrong: scores of the rule from 1 on are right."""
        return False

    @property
    def has_references(self) -> bool:
        """Whether examples have reference answers; they are empty otherwise."""
        return True

    @property
    def chat_form(self) -> ChatForm:
        """How prompts are rendered as chats."""
        takes_plain = self.chat == AUTO and not self.template
        return ChatForm(self.chat_template, self.chat_arguments, takes_plain)

    def shorter(self, example: Example, excess: int) -> Example | None:
        """The next shorter form of a prompt that is `excess` tokens too long; None if there is
        none."""
        return None

    @property
    def has_answers(self) -> bool:
        """Whether `answer` finds final answers."""
        return type(self).answer is not Task.answer

    def answer(self, text: str) -> str | None:
        """The final answer in a text; None if it has none."""
        return None

    def is_same_answer(self, one: str, other: str) -> bool:
        """Whether two answers count as the same vote."""
        return one == other

    @property
    def is_episodic(self) -> bool:
        """Whether prompts begin episodes of several turns."""
        return type(self).environment is not Task.environment

    def environment(self) -> Environment:
        """The environment of one sample."""
        raise NotImplementedError

    def demonstration(self, example: Example) -> Sequence[str]:
        """The actions of an episode that SFT learns from; `judge` scores the last one alone. Raises
        UserError where there is none."""
        raise UserError(
            f"task={self.name} has no demonstrations, which SFT learns from: pass model=<a "
            "pretrained model>, or a model of random weights, which then starts without SFT"
        )

    @property
    def shares_random(self) -> bool:
        """Whether its environments draw from Python's and NumPy's global random numbers, so that
        one call is made at a time."""
        return False

    @property
    def longest_observation(self) -> int:
        """Tokens of the longest observation, without those of a chat template."""
        return 1

    @property
    def warning(self) -> str:
        """What is probably wrong with its settings and how to avoid it; '' for nothing."""
        return ""

    def content(self) -> dict[str, str]:
        """A digest of each local file that users edit and rows are read from: what is made of the
        rows is made anew when they change."""
        return {}

    def uses(self) -> dict[str, str]:
        """What each column of the rows that is used is used for; {} if that is unknown."""
        return {}

    def notes(self) -> list[str]:
        """What else a user should know of the rows."""
        return []


@dataclass(frozen=True)
class TaskOptions(Task):
    """A task for pretrained models, judged by another model unless it overrides `judge`."""

    long_references: LongReferences = fields.long_references()


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
        return LazyExamples(size, functools.partial(self.row, split))

    @abstractmethod
    def row(self, split: Split, index: int) -> Example:
        """The row with this number, always the same."""


def require_placeholder(template: str, placeholder: str) -> None:
    """Refuse a prompt template without a field such as {question}."""
    if placeholder not in template:
        raise UserError(
            f"task.template={template!r} has no {placeholder}: add it where the text belongs"
        )
