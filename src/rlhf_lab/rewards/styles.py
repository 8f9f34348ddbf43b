"""Signatures of reward functions: this package's own, and those of TRL, verl and OpenRLHF.

Loaded in workers, so it imports no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from inspect import Parameter, Signature
from typing import Any

from rlhf_lab.rewards.worker_child import Item, finite
from rlhf_lab.runs.foreign import copied, shown
from rlhf_lab.types.samples import MIXED_TASK, Example


class Style(StrEnum):
    """The form of a function's signature; auto finds it by the names of the parameters."""

    auto = "auto"
    own = "own"
    trl = "trl"
    verl = "verl"
    openrlhf = "openrlhf"


# What each style passes by name, whatever columns there are.
STANDARD: Mapping[Style, tuple[str, ...]] = {
    Style.own: ("prompt", "completion", "reference", "hidden", "finished"),
    Style.trl: ("prompts", "completions", "completion_ids"),
    Style.verl: ("data_source", "solution_str", "ground_truth", "extra_info"),
    Style.openrlhf: ("queries", "prompts", "labels"),
}
FORMS: Mapping[Style, str] = {
    Style.own: "f(prompt, completion, *, reference, hidden, finished), once for every sample",
    Style.trl: "TRL's f(prompts, completions, COLUMN, ...), once for all samples of a chunk",
    Style.verl: "verl's f(data_source, solution_str, ground_truth, extra_info), once a sample",
    Style.openrlhf: "OpenRLHF's f(queries, prompts, labels), with lists of one, once a sample",
}
# The columns that hold what these styles pass, first the usual one.
TRUTHS = ("reward_model.ground_truth", "ground_truth")
LABELS = ("label", "labels")
# Columns of the completions themselves, which TRL passes to no function.
NO_COLUMNS = ("prompt", "completion", "completion_ids")
BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Facts:
    """What a function looks like from outside: its parameters, with a default of None where they
    have one, or no signature at all. Sent from the worker, so that only it imports user code."""

    signature: Signature | None
    is_callable: bool
    is_async: bool
    shown: str
    file: str

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that can be passed by name."""
        every = self.signature.parameters.values() if self.signature else ()
        return tuple(one.name for one in every if one.kind in BY_NAME)

    @property
    def takes_any(self) -> bool:
        """Whether it takes keyword arguments of any name."""
        every = self.signature.parameters.values() if self.signature else ()
        return any(one.kind is Parameter.VAR_KEYWORD for one in every)

    def style(self, wanted: Style) -> Style:
        """The style itself, or the one that the names of the parameters imply."""
        if wanted is not Style.auto:
            return wanted
        names = set(self.names)
        if "queries" in names:
            return Style.openrlhf
        if names & {"completions", "prompts"}:
            return Style.trl
        return Style.verl if "solution_str" in names else Style.own

    def columns(self, style: Style, arguments: Iterable[str]) -> tuple[str, ...] | None:
        """The columns of the data that it can receive; None for all."""
        if style is Style.verl:
            return ("data_source", "reward_model", "ground_truth", "extra_info")
        if style is Style.openrlhf:
            return LABELS
        if style is Style.trl and self.takes_any:
            return None
        # The first two of the own form are passed by position, whatever their names are.
        names = self.names[2:] if style is Style.own else self.names
        passed = {*STANDARD[style], *arguments}
        return tuple(name for name in names if name not in passed)

    def required(self, style: Style) -> list[str]:
        """The parameters that must be passed by name."""
        names = self.names[2:] if style is Style.own else self.names
        found = self.signature.parameters if self.signature else {}
        return [name for name in names if found[name].default is Parameter.empty]


def facts_of(function: Any, file: str) -> Facts:
    """What a function of a module's file looks like."""
    # An object with a method __call__ may be async as a function is.
    called = vars(type(function)).get("__call__", function)
    is_async = any(map(inspect.iscoroutinefunction, (function, called)))
    try:
        read = inspect.signature(function) if callable(function) else None
    except ValueError:
        read = None  # some built-ins have none; the first call decides
    return Facts(read and bare(read), callable(function), is_async, shown(function), file)


def bare(signature: Signature) -> Signature:
    """The signature without annotations and values, which may not be picklable."""
    return Signature(
        [
            Parameter(one.name, one.kind, default=one.empty if one.default is one.empty else None)
            for one in signature.parameters.values()
        ]
    )


def columns_of(example: Example) -> dict[str, Any]:
    """What is known of a row by name: its columns, and what its task hides from the policy."""
    known = {**example.hidden, **example.columns}
    known.pop(MIXED_TASK, None)
    return known


def own_call(facts: Facts, item: Item, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments of one call in the own form: by position, and by name."""
    example = item.example
    named = {
        "reference": example.reference,
        "hidden": dict(example.hidden),
        "finished": item.finished,
    }
    wanted = facts.columns(Style.own, arguments) or ()
    columns = columns_of(example) if wanted else {}
    more = {name: columns[name] for name in wanted if name in columns}
    return (example.prompt, item.text), copied(more | named | dict(arguments))


def verl_call(facts: Facts, item: Item, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """The same in verl's form."""
    columns = columns_of(item.example)
    given = {
        "data_source": columns.get("data_source", ""),
        "solution_str": item.text,
        "ground_truth": first_of(TRUTHS, columns, item.example.reference),
        "extra_info": columns.get("extra_info", {}),
    }
    return (), copied(taken(given, facts) | dict(arguments))


def openrlhf_call(facts: Facts, item: Item, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """The same in OpenRLHF's form: a query is the prompt with the completion."""
    columns, prompt = columns_of(item.example), item.rendered or item.example.prompt
    given = {
        "queries": [prompt + item.text],
        "prompts": [prompt],
        "labels": [first_of(LABELS, columns, item.example.reference)],
    }
    return (), copied(taken(given, facts) | dict(arguments))


CALLS: Mapping[Style, Callable[[Facts, Item, Mapping[str, Any]], tuple[Any, Any]]] = {
    Style.own: own_call,
    Style.verl: verl_call,
    Style.openrlhf: openrlhf_call,
}


def trl_call(
    facts: Facts, items: Sequence[Item], arguments: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The same of all samples of a chunk in TRL's form. A column that a row lacks is None there."""
    given = {
        "prompts": [prompt_of(item.example) for item in items],
        "completions": [completion_of(item) for item in items],
        "completion_ids": [list(item.tokens) for item in items],
    }
    columns = [columns_of(item.example) for item in items]
    wanted = facts.columns(Style.trl, arguments)
    if wanted is None:
        wanted = tuple(dict.fromkeys(name for row in columns for name in row))
    more = {
        name: [row.get(name) for row in columns]
        for name in wanted
        if name not in (*NO_COLUMNS, *given) and any(name in row for row in columns)
    }
    return (), copied(taken(given | more, facts) | dict(arguments))


def taken(given: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Those of the arguments that the function takes."""
    known = facts.names
    return {name: value for name, value in given.items() if facts.takes_any or name in known}


def prompt_of(example: Example) -> Any:
    """A prompt as TRL has it: a text, or the messages of a chat."""
    if not example.messages:
        return example.prompt
    return [{"role": role, "content": content} for role, content in example.messages]


def completion_of(item: Item) -> Any:
    """A completion as TRL has it: a text, or the message that follows those of a chat."""
    if not item.example.messages:
        return item.text
    return [{"role": "assistant", "content": item.text}]


def first_of(names: Sequence[str], columns: Mapping[str, Any], otherwise: Any) -> Any:
    """The first of these columns that is there; a dot leads into an object."""
    for name in names:
        if name in columns:
            return columns[name]
        outer, _, inner = name.partition(".")
        value = columns.get(outer)
        if inner and isinstance(value, Mapping) and inner in value:
            return value[inner]
    return otherwise


def one_score(style: Style, value: Any) -> float:
    """The number in what a function returned for one sample."""
    key = {Style.verl: "score", Style.openrlhf: "rewards"}.get(style)
    if key and isinstance(value, Mapping):
        if key not in value:
            raise KeyError(f"it returned {shown(value)}, without a {key!r}")
        value = value[key]
    if style is Style.openrlhf and getattr(value, "shape", None) != () and is_row(value):
        (value,) = listed(value, 1)
    return finite(value)


def is_row(value: Any) -> bool:
    """Whether it is a list, a tuple, an array or a tensor."""
    return isinstance(value, list | tuple) or hasattr(value, "shape")


def listed(value: Any, num: int) -> list[Any]:
    """The elements of a list, one for each of so many samples."""
    if not is_row(value) or getattr(value, "shape", None) == ():
        raise TypeError(
            f"it returned {shown(value)} for {num} samples: return a list with a number for each"
        )
    found = list(value)
    if len(found) != num:
        raise ValueError(f"it returned {len(found)} numbers for {num} samples")
    return found
