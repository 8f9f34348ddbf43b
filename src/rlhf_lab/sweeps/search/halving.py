"""Successive halving in brackets: when trials are compared, and which go on (arXiv:1502.07943)."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

from rlhf_lab.sweeps.search.options import Direction, SearchOptions, bad_option


@dataclass(frozen=True)
class Halving:
    """The rungs of a bracket. A trial is one run with its full schedule, paused at each rung."""

    rungs: int
    reduction: int

    @classmethod
    def of(cls, options: SearchOptions) -> Halving:
        return cls(options.rungs, options.reduction)

    def pauses(self, num_rounds: int) -> tuple[int, ...]:
        """Rounds done at each rung, at the last one all. Raises UserError if two are equal."""
        parts = [self.reduction ** (self.rungs - 1 - rung) for rung in range(self.rungs)]
        pauses = tuple(-(-num_rounds // part) for part in parts)
        if len(set(pauses)) < len(pauses):
            raise bad_option(
                "rungs",
                self.rungs,
                f"a run of {num_rounds} rounds cannot be looked at after {pauses} of them; choose "
                "fewer rungs, or raise run.updates",
            )
        return pauses

    def sizes(self, bracket: int) -> tuple[int, ...]:
        """Number of settings at each rung of a bracket."""
        sizes = [bracket]
        while len(sizes) < self.rungs:
            sizes.append(self.num_survivors(sizes[-1]))
        return tuple(sizes)

    def num_survivors(self, count: int) -> int:
        """How many trials of this number go on."""
        return max(1, count // self.reduction)

    def cost(self, bracket: int) -> float:
        """The cost of a bracket in whole runs, for one seed."""
        shares = [1 / self.reduction ** (self.rungs - 1 - rung) for rung in range(self.rungs)]
        new = [share - before for share, before in zip(shares, [0.0, *shares], strict=False)]
        return sum(map(operator.mul, self.sizes(bracket), new), 0.0)


def rank_trials(values: Mapping[int, float], count: int, direction: Direction) -> list[int]:
    """The trials with the best values, best first; ties go to the trial that was drawn first."""
    sign = -1.0 if direction is Direction.maximize else 1.0
    return sorted(values, key=lambda number: (sign * values[number], number))[:count]
