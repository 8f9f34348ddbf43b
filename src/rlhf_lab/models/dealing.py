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
    hands = [
        list(buckets(sizes, hand, max_rows, max_tokens)) for hand in hands_of(sizes, num_processes)
    ]
    num_turns = max(map(len, hands))
    for hand in hands:
        halve(hand, num_turns, sizes)
    return numbered(batch, hands)


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


def halve(hand: list[Piece], count: int, sizes: Sequence[GroupSize]) -> None:
    """Cut the micro-batches of most groups in two until there are `count`, the largest first."""
    while len(hand) < count and (most := max(hand, key=len, default=[])) and len(most) > 1:
        hand.remove(most)
        hand += [most[: len(most) // 2], most[len(most) // 2 :]]
    # What is made abreast takes as long as the largest of it.
    hand.sort(key=lambda piece: (-padded_tokens(piece, sizes), piece))


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
