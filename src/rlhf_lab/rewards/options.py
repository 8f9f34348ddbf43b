"""What all options of group `reward` have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from rlhf_lab.types import limits
from rlhf_lab.types.samples import Example


class RewardOptions(limits.Limited, key="reward"):
    """An option of config group `reward`, mounted at `reward`, `judge` or below their `terms`.

    is_rule: samples are scored by the task's own rule. is_learned: by a reward model.
    reads_example: the score depends on the task's example, not on the texts alone.
    reads_reference: what of it cannot do without reference answers, as KEY=VALUE; '' if nothing.
    """

    is_rule: ClassVar[bool] = False
    is_learned: ClassVar[bool] = False
    reads_example: ClassVar[bool] = False

    @property
    def reads_reference(self) -> str:
        return ""

    @property
    def num_proxies(self) -> int:
        """How many proxy reward models the pipeline must train for it."""
        return 0

    def model_paths(self, proxies: Sequence[str]) -> list[str]:
        """The reward models that score its samples; proxies stand in for those without a path."""
        return []

    def step_model_paths(self) -> list[str]:
        """The reward models that score its samples step by step."""
        return []

    def require_usable(self, key: str) -> None:
        """Raise UserError where something that it needs is absent: a package, a function, a key.
        key: where it is mounted."""

    def require_working(self, key: str, example: Example) -> None:
        """Raise UserError where it cannot score the reference answer of an example."""


def parts(options: RewardOptions) -> Iterator[Any]:
    """A reward's options and those of all of its terms."""
    for _, part in named_parts("", options):
        yield part


def named_parts(key: str, options: RewardOptions) -> Iterator[tuple[str, Any]]:
    """The same, each with its key in the config."""
    yield key, options
    for name, term in getattr(options, "terms", {}).items():
        yield from named_parts(f"{key}.terms.{name}", term)


def num_proxies(options: RewardOptions) -> int:
    """How many proxies the pipeline must train for a reward and its terms, which share them."""
    return max(int(part.num_proxies) for part in parts(options))


class Scorer(NamedTuple):
    """A reward model of whole samples. key: the option that names it. tokenizer: where that is, ''
    beside the model."""

    path: str
    key: str
    tokenizer: str

    @property
    def vocabulary(self) -> tuple[str, str]:
        """Where its tokenizer is, and the option that names that."""
        if not self.tokenizer:
            return self.path, self.key
        return self.tokenizer, f"{self.key.rpartition('.')[0]}.tokenizer"


def scorers(key: str, options: RewardOptions, proxies: Sequence[str]) -> list[Scorer]:
    """The reward models of a reward and its terms that score whole samples. key: where the reward
    is mounted."""
    return [
        Scorer(
            path,
            f"{place}.{getattr(part, 'paths_key', 'path')}",
            str(getattr(part, "tokenizer", "")),
        )
        for place, part in named_parts(key, options)
        for path in part.model_paths(proxies)
    ]


def reads_tokens(options: RewardOptions) -> bool:
    """Whether a reward model scores samples, all of them or as one term."""
    return any(part.is_learned or part.step_model_paths() for part in parts(options))


def scoring_paths(options: RewardOptions, proxies: Sequence[str]) -> list[str]:
    """All reward models that score a reward's samples, those of single steps among them."""
    steps = [path for part in parts(options) for path in part.step_model_paths()]
    return [one.path for one in scorers("reward", options, proxies)] + steps
