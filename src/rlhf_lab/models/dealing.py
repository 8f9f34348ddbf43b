"""Micro-batches for several processes: each gets about as many tokens as any other."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab.models.microbatches import (
    GroupSize,
    Microbatch,
    buckets,
    group_bounds,
    group_sizes,
    longest_first,
    split,
    take_groups,
)
from rlhf_lab.types.data import Batch

Piece = list[int]  # Groups of a micro-batch.


@dataclass(frozen=True)
class Dealt:
    """The micro-batches of all processes. turns: for each pass, the number of the micro-batch that
    each process takes; None where one has none left."""

    parts: list[Microbatch]
    turns: list[tuple[int | None, ...]]


def deal(batch: Batch, max_rows: int, max_tokens: int, num_processes: int) -> Dealt:
    """Micro-batches within the limits of `split`, dealt to processes.

    One process takes those of `split`. Of several, none has more tokens than the mean and one
    longest group, and all have equally many micro-batches where there are groups enough.
    """
    if num_processes == 1:
        parts = list(split(batch, max_rows, max_tokens))
        return Dealt(parts, [(number,) for number in range(len(parts))])
    sizes = group_sizes(batch)
    hands = hands_of(sizes, num_processes)
    few = [list(buckets(sizes, hand, max_rows, max_tokens)) for hand in hands]
    count = max(map(len, few))
    return numbered(
        batch,
        [
            evened(sizes, hand, pieces, count, max_rows, max_tokens) if hand else []
            for hand, pieces in zip(hands, few, strict=True)
        ],
    )


def hands_of(sizes: Sequence[GroupSize], num_processes: int) -> list[Piece]:
    """The groups of each process, the longest first: each goes to the process that has the fewest
    tokens by then."""
    hands: list[Piece] = [[] for _ in range(num_processes)]
    loads = [(0, process) for process in range(num_processes)]
    for group in sorted(range(len(sizes)), key=lambda group: (-sizes[group].tokens, group)):
        load, process = heapq.heappop(loads)
        hands[process].append(group)
        heapq.heappush(loads, (load + sizes[group].tokens, process))
    return [longest_first(sizes, hand) for hand in hands]


def evened(
    sizes: Sequence[GroupSize],
    hand: Piece,
    pieces: list[Piece],
    count: int,
    max_rows: int,
    max_tokens: int,
) -> list[Piece]:
    """A process's groups as `count` micro-batches, where there are groups enough, the largest of
    which is as small as can be. pieces: the same groups in as few as the limits let.

    What is made abreast takes as long as the largest of it, so no process fills one micro-batch
    and leaves little for the next.
    """
    low, high = 0, max(padded_tokens(piece, sizes) for piece in pieces)
    while high - low > 1:
        middle = (low + high) // 2
        tightest = min(middle, max_tokens or middle)
        found = list(buckets(sizes, hand, max_rows, tightest))
        if len(found) <= count and max(padded_tokens(piece, sizes) for piece in found) <= middle:
            pieces, high = found, middle
        else:
            low = middle
    pieces = list(pieces)
    while len(pieces) < count and len(most := max(pieces, key=len)) > 1:
        pieces.remove(most)
        pieces += [most[: len(most) // 2], most[len(most) // 2 :]]
    return sorted(pieces, key=lambda piece: (-padded_tokens(piece, sizes), piece))


def padded_tokens(piece: Piece, sizes: Sequence[GroupSize]) -> int:
    """Tokens that a model reads of these groups together."""
    width = max(sizes[g].prompt for g in piece) + max(sizes[g].response for g in piece)
    return width * sum(sizes[group].rows for group in piece)


def numbered(batch: Batch, hands: Sequence[Sequence[Piece]]) -> Dealt:
    """The micro-batches of all processes, numbered turn by turn."""
    spans = group_bounds(batch)
    dealt = Dealt([], [])
    for abreast in itertools.zip_longest(*hands):
        numbers: list[int | None] = []
        for piece in abreast:
            numbers.append(None if piece is None else len(dealt.parts))
            if piece is not None:
                dealt.parts.append(take_groups(batch, [spans[group] for group in piece]))
        dealt.turns.append(tuple(numbers))
    return dealt
