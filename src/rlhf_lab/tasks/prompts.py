"""The prompts of a run: an endless stream, each epoch in its own order, and those of a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from rlhf_lab.tasks.examples import as_examples
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Group, Prompt

# The tokens of a prompt.
Read = Callable[[Example], list[int]]
Render = Callable[[Example], str]
Shorten = Callable[[Example, int], Example | None]
# More than any tokenizer puts in front of a text.
START_TOKENS = 8


def text_of(example: Example) -> str:
    """The plain text of a prompt, which policies without a chat template read."""
    return example.prompt


def never_shorter(example: Example, excess: int) -> Example | None:
    """None: the prompts of most tasks cannot be shortened."""
    return None


def fit(
    example: Example, read: Read, shorten: Shorten, limit: int
) -> tuple[Example, tuple[int, ...]]:
    """The example and its tokens, shortened until they fit the limit or cannot be shortened."""
    tokens = read(example)
    while len(tokens) > limit and (shorter := shorten(example, len(tokens) - limit)) is not None:
        example, tokens = shorter, read(shorter)
    return example, tuple(tokens)


class PromptStream(Sequence[Prompt]):
    """stream[i] is the i-th prompt of the run, the same at any time: a run resumes at an index.

    examples are read lazily, so that a large split opens at once. The order within epoch e is keyed
    by (seed, e); without shuffle it is the order of the split. shorten: see
    `Task.shorter`. num_dropped: how many examples were left out before.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        read: Read,
        seed: int,
        max_prompt_tokens: int,
        shuffle: bool = True,
        shorten: Shorten = never_shorter,
        render: Render = text_of,
        num_dropped: int = 0,
    ) -> None:
        if not len(examples):
            raise UserError("the split has no rows: check task.path and the sizes of the splits")
        self._examples = as_examples(examples)
        self._read = read
        self._seed = seed
        self._max_prompt_tokens = max_prompt_tokens
        self._shuffle = shuffle
        self._shorten = shorten
        self._render = render
        self.num_dropped = num_dropped
        self._orders: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        """Prompts of one epoch; indices may be larger."""
        return len(self._examples)

    def __getitem__(self, index: int) -> Prompt:  # type: ignore[override]
        return self.of_row(self.row(index), index)

    def row(self, index: int) -> int:
        """The row of the split that stands at an index."""
        epoch, position = divmod(index, len(self._examples))
        return int(self._order(epoch)[position])

    def of_row(self, row: int, number: int) -> Prompt:
        """The prompt of a row of the split, under a number of the run."""
        whole = self._examples[row]
        example, tokens = fit(whole, self._read, self._shorten, self._max_prompt_tokens)
        if len(tokens) > self._max_prompt_tokens:
            raise UserError(
                f"prompt {example.uid} has {len(tokens)} tokens, more than "
                f"task.max_prompt_tokens={self._max_prompt_tokens}: raise it, or shorten the row; "
                "`rlhf-lab data` counts such rows, and with data.out=FOLDER it leaves them out"
            )
        return Prompt(number, tokens, example)

    def require_fit(self, count: int) -> None:
        """Refuse now what `stream[i]` would refuse for one of the first `count` prompts.

        No tokenizer makes more tokens than bytes, and a few in front of them, so that short texts
        need not be encoded.
        """
        most = self._max_prompt_tokens - START_TOKENS
        for index in range(min(count, len(self))):
            example = self._examples[self.row(index)]
            if len(self._render(example).encode("utf-8")) > most:
                self[index]

    def _order(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(len(self._examples))
        if epoch not in self._orders:
            if len(self._orders) > 2:
                self._orders.clear()
            key = stable_hash(self._seed, "prompts", epoch)
            rng = np.random.Generator(np.random.Philox(key=key))
            self._orders[epoch] = self._examples.order(rng)
        return self._orders[epoch]


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


class WithOffline(Sequence[Prompt]):
    """Both streams, so that any first n prompts have n * share, rounded down, of the offline one.

    A prompt depends on its number alone, so that a run resumes at any of them.
    """

    def __init__(self, online: PromptStream, offline: PromptStream, share: float) -> None:
        self._online = online
        self._offline = offline
        self._share = share
        self.num_dropped = online.num_dropped

    def __len__(self) -> int:
        """Prompts of one epoch of the online stream; indices may be larger."""
        return len(self._online)

    def __getitem__(self, index: int) -> Prompt:  # type: ignore[override]
        before = math.floor(index * self._share)
        if math.floor((index + 1) * self._share) > before:
            return replace(self._offline[before], id=index)
        return replace(self._online[index - before], id=index)
