"""The endless stream of prompts of a run: every epoch in an order of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.samples import Example, Prompt

Encode = Callable[[str], list[int]]
Render = Callable[[Example], str]
Shorten = Callable[[Example, int], Example | None]


def text_of(example: Example) -> str:
    """What most policies read of a prompt: its text."""
    return example.prompt


def as_it_is(example: Example, excess: int) -> Example | None:
    """None: most tasks have nothing in a prompt that could be left out."""
    return None


def fitted(
    example: Example, encode: Encode, shorten: Shorten, limit: int, render: Render = text_of
) -> tuple[Example, tuple[int, ...]]:
    """The example and its tokens, shortened until they are `limit` or nothing can be cut."""
    tokens = encode(render(example))
    while len(tokens) > limit and (shorter := shorten(example, len(tokens) - limit)) is not None:
        example, tokens = shorter, encode(render(shorter))
    return example, tuple(tokens)


class PromptStream(Sequence[Prompt]):
    """stream[i] is the i-th prompt of the run, whoever asks and whenever.

    So a cursor is just i: to go on after i prompts is to ask for i. examples are indexed lazily, so
    that a large split costs nothing to open. The order within epoch e is keyed by (seed, e);
    without shuffle it is the order of the split. shorten: see types.Shortening. num_dropped: how
    many examples were left out before.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        encode: Encode,
        seed: int,
        max_prompt_tokens: int,
        shuffle: bool = True,
        shorten: Shorten = as_it_is,
        render: Render = text_of,
        num_dropped: int = 0,
    ) -> None:
        if not len(examples):
            raise UserError("the split has no rows: check task.path and the sizes of the splits")
        self._examples = examples
        self._encode = encode
        self._seed = seed
        self._max_prompt_tokens = max_prompt_tokens
        self._shuffle = shuffle
        self._shorten = shorten
        self._render = render
        self.num_dropped = num_dropped
        self._orders: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        """Prompts of one epoch; indices may go beyond."""
        return len(self._examples)

    def __getitem__(self, index: int) -> Prompt:  # type: ignore[override]
        epoch, place = divmod(index, len(self._examples))
        given = self._examples[int(self._order(epoch)[place])]
        example, tokens = fitted(
            given, self._encode, self._shorten, self._max_prompt_tokens, self._render
        )
        if len(tokens) > self._max_prompt_tokens:
            raise UserError(
                f"prompt {example.uid} has {len(tokens)} tokens, more than "
                f"task.max_prompt_tokens={self._max_prompt_tokens}: raise it, or shorten the row; "
                "`rlhf-lab data` counts such rows, and with data.out=FOLDER it leaves them out"
            )
        return Prompt(index, tokens, example)

    def require_fit(self, count: int) -> None:
        """Refuse now what would be refused when its turn comes among the first `count` prompts.

        No tokenizer makes more tokens than bytes, so short texts need no second look.
        """
        for index in range(min(count, len(self))):
            example = self._examples[int(self._order(0)[index])]
            if len(self._render(example).encode("utf-8")) > self._max_prompt_tokens:
                self[index]

    def _order(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(len(self._examples))
        if epoch not in self._orders:
            if len(self._orders) > 2:
                self._orders.clear()
            key = stable_hash(self._seed, "prompts", epoch)
            rng = np.random.Generator(np.random.Philox(key=key))
            self._orders[epoch] = rng.permutation(len(self._examples))
        return self._orders[epoch]
