"""From a minibatch to micro-batches: the rows of one forward and backward pass."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rlhf_lab.types.data import Batch


@dataclass(frozen=True)
class Microbatch:
    """Some rows of a batch, without columns of padding, and their row numbers in it."""

    batch: Batch
    index_B: Tensor

    @property
    def padded_tokens(self) -> int:
        """Tokens that a model reads, padding included."""
        width = self.batch.prompt_BS.shape[1] + self.batch.read_width
        return len(self.batch) * width


def micro_batches(batch: Batch, max_rows: int) -> Iterator[Batch]:
    """Consecutive whole groups of at most `max_rows` rows (or one group, if it is larger)."""
    for part in split(batch, max_rows):
        yield part.batch


def split(batch: Batch, max_rows: int, max_tokens: int = 0) -> Iterator[Microbatch]:
    """Micro-batches of whole groups, at most `max_rows` rows each (or one group, if larger).

    max_tokens 0: groups in order. Otherwise groups of similar length together, the longest first,
    at most `max_tokens` padded tokens each (or one group). Token weights stay those of the whole
    batch, so the losses of the micro-batches add up to its loss.
    """
    if max_tokens:
        yield from bucketed(batch, max_rows, max_tokens)
        return
    start = 0
    end = 0
    for _, boundary in group_bounds(batch):
        if boundary - start > max_rows and end > start:
            yield Microbatch(trim(batch, start, end), torch.arange(start, end))
            start = end
        end = boundary
    if end > start:
        yield Microbatch(trim(batch, start, end), torch.arange(start, end))


def group_bounds(batch: Batch) -> list[tuple[int, int]]:
    """First row of every group, and the row after its last."""
    edges = [0, *(torch.where(batch.group_B.diff() != 0)[0] + 1).tolist(), len(batch)]
    return list(itertools.pairwise(edges)) if len(batch) else []


class GroupSize(NamedTuple):
    """The longest prompt and the longest response of a group's rows, with what an environment
    wrote in it, and how many rows it has."""

    prompt: int
    response: int
    rows: int

    @property
    def tokens(self) -> int:
        """Tokens that a model reads of the group alone, padding included."""
        return (self.prompt + self.response) * self.rows


def group_sizes(batch: Batch) -> list[GroupSize]:
    """The size of every group."""
    prompt_B, response_B = batch.prompt_mask_BS.sum(dim=1), batch.read_length_B
    return [
        GroupSize(int(prompt_B[a:b].max()), int(response_B[a:b].max()), b - a)
        for a, b in group_bounds(batch)
    ]


def longest_first(sizes: Sequence[GroupSize], groups: Iterable[int]) -> list[int]:
    """Groups by the length of their rows."""
    return sorted(groups, key=lambda group: (-sum(sizes[group][:2]), group))


def bucketed(batch: Batch, max_rows: int, max_tokens: int) -> Iterator[Microbatch]:
    """Groups of similar length together, the longest first, so lack of memory shows at once."""
    spans, sizes = group_bounds(batch), group_sizes(batch)
    for chosen in buckets(sizes, longest_first(sizes, range(len(sizes))), max_rows, max_tokens):
        yield take_groups(batch, [spans[member] for member in chosen])


def buckets(
    sizes: Sequence[GroupSize], groups: Iterable[int], max_rows: int, max_tokens: int
) -> Iterator[list[int]]:
    """Groups in the given order, as many together as the limits let; max_tokens 0 is no limit."""
    chosen: list[int] = []
    size = (0, 0, 0)
    for group in groups:
        prompt, response, rows = sizes[group]
        grown = (max(size[0], prompt), max(size[1], response), size[2] + rows)
        is_long = bool(max_tokens) and (grown[0] + grown[1]) * grown[2] > max_tokens
        if chosen and (is_long or grown[2] > max_rows):
            yield chosen
            chosen, grown = [], (prompt, response, rows)
        chosen.append(group)
        size = grown
    if chosen:
        yield chosen


def take_groups(batch: Batch, spans: Sequence[tuple[int, int]]) -> Microbatch:
    """Some groups of a batch as one micro-batch, in the given order."""
    index_B = torch.cat([torch.arange(start, end) for start, end in spans])
    return Microbatch(trim(batch.rows(index_B), 0, len(index_B)), index_B)


def trim(batch: Batch, start: int, end: int) -> Batch:
    """Rows start..end, without the columns in which all of them are padding."""
    part = {name: tensor[start:end] for name, tensor in vars(batch).items()}
    first = int(part["prompt_mask_BS"].any(dim=0).float().argmax())
    last, last_of_text = used_columns(part["mask_BT"]), used_columns(part["writer_BU"])
    for name, tensor in part.items():
        if name.endswith("_BS"):
            part[name] = tensor[:, first:]
        elif name.endswith("_BT"):
            part[name] = tensor[:, :last]
        elif name.endswith("_BU"):
            part[name] = tensor[:, :last_of_text]
    return Batch(**part)


def used_columns(mask: Tensor) -> int:
    """How many of the first columns any row uses."""
    is_used = (mask > 0).any(dim=0)
    return int(is_used.nonzero().max()) + 1 if is_used.any() else 0


Piece = list[int]  # Groups of a micro-batch.


@dataclass(frozen=True)
class RankShares:
    """The micro-batches of all processes. turns: for each pass, the number of the micro-batch that
    each process takes; None where one has none left."""

    parts: list[Microbatch]
    turns: list[tuple[int | None, ...]]


def rank_split(batch: Batch, max_rows: int, max_tokens: int, num_processes: int) -> RankShares:
    """Micro-batches within the limits of `split`, shares to processes.

    One process takes those of `split`. Of several, none has more tokens than the mean and one
    longest group, and all have equally many micro-batches where there are groups enough.
    """
    if num_processes == 1:
        parts = list(split(batch, max_rows, max_tokens))
        return RankShares(parts, [(number,) for number in range(len(parts))])
    sizes = group_sizes(batch)
    hands = groups_of_ranks(sizes, num_processes)
    few = [list(buckets(sizes, hand, max_rows, max_tokens)) for hand in hands]
    count = max(map(len, few))
    return numbered(
        batch,
        [
            evened(sizes, hand, pieces, count, max_rows, max_tokens) if hand else []
            for hand, pieces in zip(hands, few, strict=True)
        ],
    )


def groups_of_ranks(sizes: Sequence[GroupSize], num_processes: int) -> list[Piece]:
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


def numbered(batch: Batch, hands: Sequence[Sequence[Piece]]) -> RankShares:
    """The micro-batches of all processes, numbered turn by turn."""
    spans = group_bounds(batch)
    shares = RankShares([], [])
    for abreast in itertools.zip_longest(*hands):
        numbers: list[int | None] = []
        for piece in abreast:
            numbers.append(None if piece is None else len(shares.parts))
            if piece is not None:
                shares.parts.append(take_groups(batch, [spans[group] for group in piece]))
        shares.turns.append(tuple(numbers))
    return shares
