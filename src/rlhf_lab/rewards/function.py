"""A Python function of the user's own as a reward."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rlhf_lab.rewards import fields
from rlhf_lab.rewards.limited import OnError, SampleScorer
from rlhf_lab.rewards.options import RewardContext, RewardOptions
from rlhf_lab.rewards.styles import (
    CALLS,
    FORMS,
    STANDARD,
    TRUTHS,
    Facts,
    Style,
    columns_of,
    facts_of,
    first_of,
    listed,
    one_score,
    trl_call,
)
from rlhf_lab.rewards.worker_child import (
    Failure,
    Item,
    Outcome,
    Scoring,
    failure,
    finite,
    late,
    outcome_of,
)
from rlhf_lab.rewards.workers import keep, workers_for
from rlhf_lab.runs.foreign import see_working_folder
from rlhf_lab.types import limits
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Prompt, Sample
from rlhf_lab.types.text_frame import TextFrame

if TYPE_CHECKING:
    import asyncio

SIGNATURE = (
    "def reward(prompt: str, completion: str, *, reference: str, hidden: Mapping[str, Any], "
    "finished: bool) -> float"
)
# Functions of this package need no process to keep them in.
PACKAGE = f"{__name__.partition('.')[0]}."
# By the working folder, which has the modules, and the path.
_facts: dict[tuple[str, str], Facts] = {}


@dataclass(frozen=True)
class FunctionReward(RewardOptions):
    """A Python function of your own, reward.path=my_module.my_reward, in the form of this package,
    TRL, verl or OpenRLHF (docs/rewards.md)."""

    name: str = limits.name("function")
    path: str = limits.option(
        "",
        about="Dotted name of the function; modules of the working folder can be imported.",
        trust=True,
    )
    style: Style = limits.option(
        Style.auto,
        about=(
            "Whose signature it has: own (prompt, completion, ...), trl (completions, ...), verl "
            "(solution_str, ...) or openrlhf (queries, ...); auto goes by its parameters."
        ),
    )
    arguments: dict[str, Any] = limits.collection(
        dict, about="Further keyword arguments of the function."
    )
    special_tokens: bool = fields.special_tokens()
    workers: int = fields.workers()
    time_limit_s: float = fields.time_limit_s()
    on_error: OnError = fields.on_error()
    reads_example: ClassVar[bool] = True
    runs_own_code: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        every = STANDARD if self.style is Style.auto else {self.style: STANDARD[self.style]}
        for name in self.arguments:
            if any(name in names for names in every.values()):
                raise UserError(
                    f"reward.arguments.{name}={self.arguments[name]}: every call passes it already "
                    "with the sample's own value; name the argument otherwise"
                )

    def build(self, context: RewardContext) -> SampleScorer:
        frame = TextFrame(context.tokenizer)

        def text_of(sample: Sample) -> str:
            is_whole = self.special_tokens
            return frame.text(sample.answer, keep_special=True) if is_whole else sample.text

        def prompt_text(prompt: Prompt) -> str:
            example = prompt.example
            is_read = example.messages and prompt.tokens
            return frame.text(prompt.tokens, keep_special=True) if is_read else example.prompt

        return SampleScorer(
            self.scoring,
            self.time_limit_s,
            self.on_error,
            text_of,
            None if self.is_local else self.workers,
            prompt_text,
        )

    def require_usable(self, key: str) -> None:
        """Refuse a path that leads to nothing that can be called as a reward is."""
        place = f"{key}.path={self.path}"
        if not all(part.isidentifier() for part in self.path.split(".")) or "." not in self.path:
            raise UserError(
                f"{place}: pass the dotted name of a function, as in {key}.path=my_module.my_reward"
            )
        try:
            facts = self.facts()
        except Exception as error:
            raise UserError(
                f"{place} could not be imported ({error}): pass "
                f"MODULE.FUNCTION, of a module in the working folder ({os.getcwd()}) or installed"
            ) from error
        if not facts.is_callable:
            raise UserError(f"{place} is {facts.shown}, which cannot be called: name a function")
        style = facts.style(self.style)
        lists = sorted({"prompts", "completions", "queries"} & set(facts.names))
        if style in (Style.own, Style.verl) and lists:
            raise UserError(
                f"{key}.style={style} with {place}, whose parameter {lists[0]!r} is a list by its "
                f"name: pass {key}.style=auto, or name it in the singular"
            )
        if not facts.signature or style is not Style.own:
            return
        named = dict.fromkeys((*STANDARD[style][2:], *self.arguments))
        columns = dict.fromkeys(facts.columns(style, self.arguments) or ())
        try:
            facts.signature.bind("", "", **columns | named)
        except TypeError as error:
            raise UserError(
                f"{place} does not take the arguments of a reward ({error}): write it as "
                f"`{SIGNATURE}`, or in a form of TRL, verl or OpenRLHF, with the names in "
                f"{key}.arguments as further keyword arguments"
            ) from error

    def require_working(self, key: str, example: Example) -> None:
        """Refuse a function that asks for a column that the rows do not have, or has no finite
        score for the reference answer."""
        facts, known = self.facts(), columns_of(example)
        style = facts.style(self.style)
        passed = {*STANDARD[style], *self.arguments, *known}
        if style is Style.verl and not first_of(TRUTHS, known, example.reference):
            passed.discard("ground_truth")
        missing = [name for name in facts.required(style) if name not in passed]
        if missing:
            raise UserError(
                f"{key}.path={self.path} asks for {missing[0]!r}, and the rows have "
                f"{', '.join(sorted(known)) or 'no columns'}: rename the column or the parameter, "
                f"pass +{key}.arguments.{missing[0]}=VALUE, or for ground_truth "
                "task.reference=COLUMN"
            )
        item = Item(example, example.reference.strip(), True, (), example.prompt)
        if self.is_local:
            ((_, outcome),) = self.scoring.outcomes([item])
        else:
            workers = workers_for(self.scoring, self.workers, self.time_limit_s)
            ((_, outcome),) = workers.outcomes([item])
            keep(workers)
        if isinstance(outcome, Failure):
            answer = "a reference answer" if example.reference else "an empty answer"
            raise UserError(
                f"{key}.path={self.path} cannot score {answer} ({outcome.text}): it must return a "
                f"finite number for every answer; correct it, {key}.arguments or "
                f"{key}.time_limit_s"
            )

    @property
    def scoring(self) -> FunctionScoring:
        """What scores in a worker."""
        return FunctionScoring(self.path, self.arguments, self.style, self.time_limit_s)

    @property
    def is_local(self) -> bool:
        """Whether the function runs in this process: one of this package, without a time limit."""
        return self.path.startswith(PACKAGE) and not self.time_limit_s and self.workers < 2

    def facts(self) -> Facts:
        """What the function looks like. Raises what its module raised in the worker."""
        if self.is_local:
            return loaded(self.path)[1]
        place = os.getcwd(), self.path
        if place not in _facts:
            workers = workers_for(self.scoring, self.workers, self.time_limit_s)
            _facts[place] = workers.facts()
            keep(workers)
        return _facts[place]

    @property
    def note(self) -> str:
        if not self.path:
            return ""
        facts = self.facts()
        style = facts.style(self.style)
        form = f"async {FORMS[style]}" if facts.is_async else FORMS[style]
        return f"{self.path} is called as {form} (style={style})"

    @property
    def columns(self) -> tuple[str, ...] | None:
        if not self.path:
            return ()
        facts = self.facts()
        return facts.columns(facts.style(self.style), self.arguments)

    def code_digests(self) -> list[str]:
        file = self.facts().file
        return [hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""]


@dataclass(frozen=True)
class FunctionScoring(Scoring):
    """The function in a worker, to which it travels by its name. seconds: the limit for a sample;
    0 for none."""

    path: str
    arguments: dict[str, Any]
    wanted: Style = Style.auto
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.path

    def ready(self) -> Facts:
        return loaded(self.path)[1]

    @property
    def is_whole(self) -> bool:
        return self.style is Style.trl or loaded(self.path)[1].is_async

    @property
    def style(self) -> Style:
        """The style of the function, once it is loaded."""
        return loaded(self.path)[1].style(self.wanted)

    def outcomes(self, items: Sequence[Item]) -> Iterator[tuple[int, Outcome]]:
        facts = loaded(self.path)[1]
        if self.style is Style.trl:
            return enumerate(self._together(items))
        if facts.is_async:
            values = results(self._called, items, self.seconds, self.path)
            return enumerate(map(self._read, values, items))

        def score(item: Item) -> float:
            return one_score(self.style, self._called(item))

        return ((place, outcome_of(score, one, self.path)) for place, one in enumerate(items))

    def _called(self, item: Item) -> Any:
        function, facts = loaded(self.path)
        given, named = CALLS[self.style](facts, item, self.arguments)
        return function(*given, **named)

    def _read(self, value: Any, item: Item) -> Outcome:
        """The score in what was returned for an item."""
        if isinstance(value, Failure):
            return value
        return outcome_of(lambda _: one_score(self.style, value), item, self.path)

    def _together(self, items: Sequence[Item]) -> Iterator[Outcome]:
        """The outcomes of one call for all items: the score of each, or the error of all."""
        values: list[Any] = []

        def called(_: Item) -> None:
            function, facts = loaded(self.path)
            given, named = trl_call(facts, items, self.arguments)
            value = function(*given, **named)
            if facts.is_async:
                value = runner().run(value)
            values.extend(listed(value, len(items)))

        if isinstance(whole := outcome_of(called, items[0], self.path), Failure):
            more = f", of which {len(items)} were scored in one call"
            yield from [Failure(whole.text + more, whole.traceback, error=whole.error)] * len(items)
            return
        for item, value in zip(items, values, strict=True):
            yield None if value is None else outcome_of(partial(number, value), item, self.path)


def number(value: Any, _: Item) -> float:
    """What a function returned for an item, as a number."""
    return finite(value)


@functools.cache
def loaded(path: str) -> tuple[Callable[..., Any], Facts]:
    """The object of a dotted name, with the working folder importable as under python -m."""
    see_working_folder()
    module, _, name = path.rpartition(".")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function, facts_of(function, getattr(sys.modules[module], "__file__", None) or "")


@functools.cache
def runner() -> asyncio.Runner:
    """One event loop for all calls of a worker, to which clients that a module keeps belong."""
    # Here, since asyncio takes a third of a worker's start, and few functions need it.
    import asyncio

    return asyncio.Runner()


def results(
    start: Callable[[Item], Coroutine[Any, Any, Any]],
    items: Sequence[Item],
    seconds: float,
    name: str,
) -> list[Any]:
    """What the coroutine of each item returns, or its failure; all wait at the same time. seconds:
    the limit of each; 0 for none. name: of what is called, in messages."""
    import asyncio

    async def one(item: Item) -> Any:
        limit = asyncio.timeout(seconds or None)
        try:
            async with limit:
                return await start(item)
        except BaseException as error:
            return late(item, seconds) if limit.expired() else failure(item, name, error)

    async def every() -> list[Any]:
        return list(await asyncio.gather(*map(one, items)))

    return runner().run(every())
