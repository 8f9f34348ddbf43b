"""Which prompt stands at each place of a round: of a stream, whatever the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rlhf_lab.types.data import Metrics
from rlhf_lab.types.samples import Group, Prompt


class PromptSelection(Protocol):
    """The prompts of every round.

    is_known_ahead: whether the prompts of any round are known from the beginning. observe: the
    scored groups of a round that is trained on now; gives metrics of the selection. state, restore:
    of a checkpoint between two rounds.
    """

    @property
    def is_known_ahead(self) -> bool: ...

    def prompt(self, round_: int, place: int) -> Prompt: ...

    def observe(self, round_: int, groups: Sequence[Group]) -> Metrics: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


class EveryPrompt:
    """The prompts of a stream in its order, `groups` in each round."""

    is_known_ahead = True

    def __init__(self, stream: Sequence[Prompt], groups: int) -> None:
        self._stream = stream
        self._groups = groups

    def prompt(self, round_: int, place: int) -> Prompt:
        """The prompt of a place of a round."""
        return self._stream[round_ * self._groups + place]

    def observe(self, round_: int, groups: Sequence[Group]) -> Metrics:
        """No metrics: results change nothing."""
        return {}

    def state(self) -> dict[str, Any]:
        """Nothing: a prompt follows from its number."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Nothing to do."""
