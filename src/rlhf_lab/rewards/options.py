"""What all options of group `reward` have in common, and what their live rewards are built from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from rlhf_lab.rewards.fields import AUTO
from rlhf_lab.tasks.references import reference_form, reference_sample
from rlhf_lab.tasks.task_options import Task
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.precision import Precision
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Group, Sample


class RewardOptions(limits.OptionGroup, ABC, key="reward"):
    """An option of config group `reward`, mounted at `reward`, `judge` or below their `terms`.

    scores: whether it scores at all; is_rule: by the task's own rule, is_learned: by a reward
    model, needs_episodes: by the environment of the task. reads_example: the score depends on the
    task's example, not on the texts alone. runs_own_code: it imports a module of the user's. terms:
    rewards that it combines, by name; by_task: each scores the samples of the task of this name in
    a mixture. device, dtype: where its models run, and in which type of numbers. paths_key: the
    option that names its models; tokenizer: where theirs is, '' beside the model.
    """

    is_rule: ClassVar[bool] = False
    is_learned: ClassVar[bool] = False
    needs_episodes: ClassVar[bool] = False
    reads_example: ClassVar[bool] = False
    runs_own_code: ClassVar[bool] = False
    by_task: ClassVar[bool] = False
    scores: ClassVar[bool] = True
    paths_key: ClassVar[str] = "path"
    name: str
    terms: Mapping[str, Any] = MappingProxyType({})
    device: str = AUTO
    dtype: Precision = Precision.auto
    tokenizer: str = ""

    @abstractmethod
    def build(self, context: RewardContext) -> Any:
        """The live reward: any object with the method `score` of `types.reward.Reward`. Each
        process that scores builds its own."""

    @property
    def reads_reference(self) -> str:
        """The option by which it needs reference answers, as KEY=VALUE; '' if it needs none."""
        return ""

    @property
    def num_proxies(self) -> int:
        """How many proxy reward models the pipeline must train for it."""
        return 0

    def model_paths(self, proxies: Sequence[str]) -> list[str]:
        """The reward models that score its samples. proxies: of those without a path."""
        return []

    def step_model_paths(self) -> list[str]:
        """The reward models that score its samples step by step."""
        return []

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns of the data that it reads, None for all."""
        return ()

    @property
    def note(self) -> str:
        """A line about it for the output of a run; '' for none."""
        return ""

    def code_digests(self) -> list[str]:
        """Digests of the user's code that scores: artifacts of older code are not reused."""
        return []

    def require_working(self, key: str, example: Example) -> None:
        """Raise UserError where it cannot score the reference answer of an example."""


@dataclass(frozen=True)
class NoJudge(RewardOptions):
    """No judge: evaluation reports the mean reward, and no measure that needs a judge."""

    name: str = limits.name("none")
    scores: ClassVar[bool] = False

    def build(self, context: RewardContext) -> Reward:
        raise UserError(
            "judge=none, and this needs a judge: pass reward@judge=function "
            "judge.path=MODULE.FUNCTION, or another option of group reward"
        )


@dataclass(frozen=True)
class RewardContext:
    """What a reward needs besides its options.

    tokenizer: the policy's. proxies: folders of the proxies that the pipeline trained, which stand
    in for models that no path names. response_limit: in tokens. cache: folder of all products.
    device: the torch.device of reward models that name none; None: the CPU. by_length: see
    ModelScorer. key: where the options are mounted.
    """

    task: Task
    tokenizer: Any
    proxies: Sequence[str]
    threads: int
    response_limit: int
    cache: Path
    device: Any = None
    by_length: bool = False
    key: str = "reward"

    def terms_of(self, options: RewardOptions) -> dict[str, Reward]:
        return {
            name: build_scorer(term, replace(self, key=f"{self.key}.terms.{name}"))
            for name, term in options.terms.items()
        }

    def reference_for(self, options: RewardOptions) -> Callable[[Group], Sample]:
        """Gives the reference answer to a group's prompt, as the reward of these options reads
        it."""
        form = reference_form(self.task, as_text=not reads_tokens(options))

        def reference(group: Group) -> Sample:
            return reference_sample(group.prompt, self.tokenizer, self.response_limit, form)

        return reference


# What a live reward can do besides `score`, if it extends Reward.
ABILITIES = ("scored", "as_term", "partial_scores", "drain", "compare")


class OwnReward(Reward):
    """A plugin's live reward that does not extend Reward: its `score` alone is called."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return list(self._own.score(groups))


def build_scorer(options: RewardOptions, context: RewardContext) -> Reward:
    """The live reward of options. Raises UserError for an object of a plugin without `score`, and
    for one that can do more without the base class, since that would never be called."""
    built = options.build(context)
    if isinstance(built, Reward):
        return built
    more = [name for name in ABILITIES if hasattr(built, name)]
    if more or not callable(getattr(built, "score", None)):
        what = f"has a method {more[0]}" if more else "has no method score"
        raise UserError(
            f"{context.key}={options.name}: what it builds ({type(built).__name__}) {what} and "
            "does not extend rlhf_lab.types.reward.Reward: extend it (docs/extending.md)"
        )
    return OwnReward(built)


def parts(options: RewardOptions) -> Iterator[Any]:
    """A reward's options and those of all of its terms."""
    for _, part in named_parts("", options):
        yield part


def named_parts(key: str, options: RewardOptions) -> Iterator[tuple[str, Any]]:
    """The same, each with its key in the config."""
    yield key, options
    for name, term in options.terms.items():
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
        Scorer(path, f"{place}.{part.paths_key}", part.tokenizer)
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
