"""The prompts of a run: an endless stream, each epoch in its own order, and those of a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from rlhf_lab.tasks.examples import as_examples
from rlhf_lab.types.data import Metrics
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.prompt_options import PromptChoice
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.run_options import RunOptions
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
        """The row of the split at an index."""
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


NEVER = -1


@dataclass(frozen=True)
class Memory:
    """What is known of a row. rates: mean rewards of its latest groups, oldest first. tested: the
    round of the last of them. drawn: the last round that it was drawn for. repeats: how often it
    was drawn again."""

    rates: tuple[float, ...] = ()
    tested: int = NEVER
    drawn: int = NEVER
    repeats: int = 0

    @property
    def pass_rate(self) -> float:
        return math.fsum(self.rates) / len(self.rates)


@dataclass(frozen=True)
class Draw:
    """The rows of a round, and metrics of how they were chosen."""

    rows: tuple[int, ...]
    metrics: Metrics


class RememberedPrompts:
    """The prompts of each round by their pass rates (arXiv:2504.03380, arXiv:2603.21177).

    A generator may write the prompts of round r as soon as round r - 1 - S is trained on, where S
    is mode.max_staleness. So these, and all before them, are the only results that round r looks
    at: prompts are the same in every mode, also in one that would know more by then.
    """

    is_known_ahead = False

    def __init__(self, stream: PromptStream, run_options: RunOptions, max_staleness: int) -> None:
        self._stream = stream
        self._options = run_options
        self._max_staleness = max_staleness
        self._cursor = 0
        self._observed = NEVER
        self._draws: dict[int, Draw] = {}
        self._memories: dict[int, Memory] = {}
        # Results that are too new for the rounds drawn so far: (round, (row, pass rate) pairs).
        self._waiting: list[tuple[int, list[tuple[int, float]]]] = []

    def prompt(self, round_: int, place: int) -> Prompt:
        """The prompt of a place of a round; its number is that of the place, as in a stream."""
        for next_ in range(max(self._draws, default=NEVER) + 1, round_ + 1):
            self._draws[next_] = self._draw(next_)
        number = round_ * self._options.groups_generated + place
        return self._stream.of_row(self._draws[round_].rows[place], number)

    def _draw(self, round_: int) -> Draw:
        newest = round_ - 1 - self._max_staleness
        if self._observed < newest:
            raise RuntimeError(
                f"the prompts of round {round_} follow from results up to round {newest}; those of "
                f"round {self._observed} are the latest"
            )
        self._learn(newest)
        rows = self._repeated(round_)
        num_repeated = len(rows)
        for row in rows:
            before = self._memories[row]
            self._memories[row] = replace(before, drawn=round_, repeats=before.repeats + 1)
        num_left_out = 0
        while len(rows) < self._options.groups_generated:
            row = self._stream.row(self._cursor)
            self._cursor += 1
            # After a whole epoch without enough prompts, the round takes any.
            if num_left_out < len(self._stream) and self._is_left_out(row, round_):
                num_left_out += 1
                continue
            rows.append(row)
            self._memories[row] = replace(self._memories.get(row, Memory()), drawn=round_)
        left_out = num_left_out / (num_left_out + len(rows))
        shares = {"prompts/filtered": left_out, "prompts/repeated": num_repeated / len(rows)}
        return Draw(tuple(rows), shares | self._known())

    def _learn(self, newest: int) -> None:
        """Take in the results of rounds up to this one."""
        while self._waiting and self._waiting[0][0] <= newest:
            round_, results = self._waiting.pop(0)
            for row, rate in results:
                before = self._memories[row]
                rates = (*before.rates, rate)[-self._options.pass_rate_window :]
                self._memories[row] = replace(before, rates=rates, tested=round_)

    def _repeated(self, round_: int) -> list[int]:
        """The rows to draw again, nearest to a pass rate of 1/2 first; then the smaller rate, then
        the rarer one, then the order of the split."""
        if self._options.prompts is not PromptChoice.replay:
            return []
        ready = [
            (abs(memory.pass_rate - 0.5), memory.pass_rate, memory.repeats, row)
            for row, memory in self._memories.items()
            if self._is_ready(memory, round_)
        ]
        return [row for *_, row in sorted(ready)[: self._options.groups_repeated]]

    def _is_ready(self, memory: Memory, round_: int) -> bool:
        options = self._options
        return (
            # The result of its last draw is known.
            memory.tested == memory.drawn
            and round_ - memory.drawn >= options.cooldown_rounds
            and memory.repeats < options.max_repeats
            and options.min_pass_rate <= memory.pass_rate <= options.max_pass_rate
        )

    def _is_left_out(self, row: int, round_: int) -> bool:
        memory = self._memories.get(row, Memory())
        if self._options.prompts is PromptChoice.replay:
            return memory.drawn == round_
        is_tested = len(memory.rates) == self._options.pass_rate_window
        if not is_tested or round_ - memory.tested > self._options.rest_rounds:
            return False
        return not 0 < memory.pass_rate < 1

    def observe(self, round_: int, groups: Sequence[Group]) -> Metrics:
        """Remember the results of a round that is trained on. Gives the metrics of its draw."""
        draw, first = self._draws[round_], round_ * self._options.groups_generated
        results = [
            (draw.rows[group.prompt.id - first], math.fsum(group.rewards) / len(group.rewards))
            for group in groups
        ]
        self._waiting.append((round_, results))
        self._observed = round_
        # Prompts of a buffer of rounds are read from a checkpoint by their places.
        oldest = round_ - self._options.buffer_rounds
        self._draws = {r: one for r, one in self._draws.items() if r >= oldest}
        return draw.metrics

    def _known(self) -> Metrics:
        """What a round knew of prompts when it was drawn."""
        memories = self._memories.values()
        rates = [memory.pass_rate for memory in memories if memory.rates]
        metrics: Metrics = {
            "prompts/repeats": sum(memory.repeats for memory in memories),
            "prompts/remembered": len(rates),
        }
        if rates:
            metrics["prompts/pass_rate"] = math.fsum(rates) / len(rates)
        return metrics

    def state(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "cursor": self._cursor,
            "observed": self._observed,
            "draws": [[round_, list(one.rows), one.metrics] for round_, one in self._draws.items()],
            "memories": [
                [row, list(one.rates), one.tested, one.drawn, one.repeats]
                for row, one in self._memories.items()
            ],
            "waiting": [[round_, [list(pair) for pair in rows]] for round_, rows in self._waiting],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._cursor, self._observed = state["cursor"], state["observed"]
        self._draws = {r: Draw(tuple(rows), metrics) for r, rows, metrics in state["draws"]}
        self._memories = {
            row: Memory(tuple(rates), *rest) for row, rates, *rest in state["memories"]
        }
        self._waiting = [(r, [(row, rate) for row, rate in rows]) for r, rows in state["waiting"]]
