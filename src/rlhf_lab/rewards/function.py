"""A Python function of the user's own as a reward."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.limited import ChildJudge, OnError
from rlhf_lab.rewards.limited_child import finite
from rlhf_lab.rewards.options import RewardOptions
from rlhf_lab.runs.foreign.boundary import ForeignFailure, call, on_sample
from rlhf_lab.runs.foreign.modules import see_working_folder
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example

STANDARD_ARGUMENTS = ("prompt", "completion", "reference", "hidden", "finished")
SIGNATURE = (
    "def reward(prompt: str, completion: str, *, reference: str, hidden: Mapping[str, Any], "
    "finished: bool) -> float"
)


@dataclass(frozen=True)
class FunctionReward(RewardOptions):
    """A Python function of your own, reward.path=my_module.my_reward, called once for every sample
    (docs/rewards.md)."""

    name: str = limits.name("function")
    path: str = limits.option(
        "", about="Dotted name of the function; modules of the working folder can be imported."
    )
    arguments: dict[str, Any] = limits.collection(
        dict, about="Further keyword arguments of the function."
    )
    special_tokens: bool = fields.special_tokens()
    time_limit_s: float = fields.time_limit_s()
    on_error: OnError = fields.on_error()
    reads_example: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.arguments:
            if name in STANDARD_ARGUMENTS:
                raise UserError(
                    f"reward.arguments.{name}={self.arguments[name]}: every call passes it already "
                    "with the sample's own value; name the argument otherwise"
                )

    def require_usable(self, key: str) -> None:
        require_function(key, self)

    def require_working(self, key: str, example: Example) -> None:
        require_score(key, self, example)


@dataclass(frozen=True)
class FunctionJudge:
    """The function as a judge of samples. It travels to other processes by its name."""

    path: str
    arguments: dict[str, Any]

    def __call__(self, example: Example, text: str, finished: bool) -> float:
        """The function's score of one sample. Raises ForeignFailure with the prompt's uid."""
        keywords = self.keywords(example, finished)
        try:
            return call(
                self.path, finite_score, loaded(self.path), example.prompt, text, **keywords
            )
        except ForeignFailure as failure:
            raise on_sample(failure, example.uid, text) from failure.__cause__

    def keywords(self, example: Example, finished: bool) -> dict[str, Any]:
        """The keyword arguments of one call."""
        own = {"reference": example.reference, "hidden": dict(example.hidden), "finished": finished}
        return own | self.arguments


@functools.cache
def named(path: str) -> Callable[..., Any]:
    """The object of a dotted name, with the working folder importable as under python -m."""
    see_working_folder()
    module, _, name = path.rpartition(".")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


@functools.cache
def loaded(path: str) -> Callable[..., Any]:
    """The same, whatever its module does when it is loaded."""
    return call(path, named, path)


def finite_score(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> float:
    """What a function returns, as a number: the conversion may run code of the user's, too."""
    return finite(function(*arguments, **keywords))


def require_function(key: str, options: FunctionReward) -> None:
    """Refuse a path that leads to nothing that can be called as a reward is."""
    place = f"{key}.path={options.path}"
    if not all(part.isidentifier() for part in options.path.split(".")) or "." not in options.path:
        raise UserError(
            f"{place}: pass the dotted name of a function, as in {key}.path=my_module.my_reward"
        )
    try:
        function = loaded(options.path)
    except ForeignFailure as failure:
        raise UserError(
            f"{place} could not be imported ({failure}): pass "
            f"MODULE.FUNCTION, of a module in the working folder ({os.getcwd()}) or installed"
        ) from failure
    if not callable(function):
        raise UserError(f"{place} is {function!r}, which cannot be called: name a function")
    judge = FunctionJudge(options.path, options.arguments)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # some built-ins have none; the first call decides
    try:
        signature.bind("", "", **judge.keywords(Example("", "", ""), True))
    except TypeError as error:
        raise UserError(
            f"{place} does not take the arguments of a reward ({error}): write it as `{SIGNATURE}`,"
            f" with the names in {key}.arguments as further keyword arguments"
        ) from error


def require_score(key: str, options: FunctionReward, example: Example) -> None:
    """Refuse a function that has no finite score for a task's own reference answer."""
    function = FunctionJudge(options.path, options.arguments)
    judge = ChildJudge(function, options.time_limit_s) if options.time_limit_s else function
    try:
        judge(example, example.reference.strip(), True)
    except Exception as error:
        answer = "a reference answer" if example.reference else "an empty answer"
        raise UserError(
            f"{key}.path={options.path} cannot score {answer} ({error}): it must return "
            f"a finite number for every answer; correct it, {key}.arguments or {key}.time_limit_s"
        ) from error


def code_of(options: FunctionReward) -> str:
    """Digest of the module's file, so that artifacts of older code are not reused."""
    loaded(options.path)
    file = getattr(sys.modules[options.path.rpartition(".")[0]], "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
