"""Which runs and seeds a figure or a table shows, for its caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlhf_lab.runs.trackers.console import counted
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.ranges import first_few, listed, ranges_text


def seeds_text(seeds: Sequence[int]) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} {ranges_text(seeds)}"


def seeds_of(cells: Sequence[Cell]) -> dict[str, tuple[int, ...]]:
    """The seeds of each condition, as `runs_text` reads them."""
    several = len({cell.sweep for cell in cells}) > 1
    return {
        f"{f'{cell.sweep}: ' if several else ''}{cell.condition} [{cell.env}]": cell.seeds
        for cell in cells
    }


def runs_text(cells: Mapping[str, tuple[int, ...]]) -> str:
    """How many seeds each condition has, and which; once if all have the same.

    cells: seeds by a condition's name, which ends in its environment: `ppo N=1 [tldr]`.
    """
    envs = dict.fromkeys(name.rpartition(" [")[2].removesuffix("]") for name in cells)
    runs = counted(sum(map(len, cells.values())), "run")
    total = f"{runs} of {counted(len(cells), 'condition')} in {listed(envs)}"
    by_seeds: dict[tuple[int, ...], list[str]] = {}
    for name, seeds in cells.items():
        named = name.rpartition(" [")[0] if len(envs) == 1 else name
        by_seeds.setdefault(seeds, []).append(named)
    if len(by_seeds) == 1:
        seeds = next(iter(by_seeds))
        return f"{total}, n = {len(seeds)}{' each' if len(cells) > 1 else ''} ({seeds_text(seeds)})"
    each = (
        f"n = {len(seeds)} ({seeds_text(seeds)}): {', '.join(first_few(names, 'conditions'))}"
        for seeds, names in by_seeds.items()
    )
    return f"{total}: {'; '.join(each)}"


def left_out_text(lines: Sequence[str]) -> tuple[str, ...]:
    """How many runs and conditions do not count, and the first of them; nothing if all do."""
    reasons = first_few([line.removeprefix("left out: ") for line in lines])
    return (f"{len(lines)} left out: {'; '.join(reasons)}",) if lines else ()
