"""Successive halving in brackets: who goes on, and when that is decided (arXiv:1502.07943)."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

from rlhf_lab.sweeps.search.options import Direction, SearchOptions, refused


@dataclass(frozen=True)
class Halving:
    """The rungs of a bracket. Those of a trial are one run with its whole schedule, paused."""

    rungs: int
    reduction: int

    @classmethod
    def of(cls, options: SearchOptions) -> Halving:
        return cls(options.rungs, options.reduction)

    def pauses(self, num_rounds: int) -> tuple[int, ...]:
        """Rounds done at each rung, the last being all. Raises UserError if two are the same."""
        parts = [self.reduction ** (self.rungs - 1 - rung) for rung in range(self.rungs)]
        found = tuple(-(-num_rounds // part) for part in parts)
        if len(set(found)) < len(found):
            raise refused(
                "rungs",
                self.rungs,
                f"a run of {num_rounds} rounds cannot be looked at after {found} of them; choose "
                "fewer rungs, or raise run.updates",
            )
        return found

    def sizes(self, bracket: int) -> tuple[int, ...]:
        """Settings at each rung of a bracket."""
        found = [bracket]
        while len(found) < self.rungs:
            found.append(self.kept(found[-1]))
        return tuple(found)

    def kept(self, count: int) -> int:
        """How many of so many go on."""
        return max(1, count // self.reduction)

    def cost(self, bracket: int) -> float:
        """Whole runs that a bracket amounts to, for one seed."""
        shares = [1 / self.reduction ** (self.rungs - 1 - rung) for rung in range(self.rungs)]
        new = [share - before for share, before in zip(shares, [0.0, *shares], strict=False)]
        return sum(map(operator.mul, self.sizes(bracket), new), 0.0)


def best(values: Mapping[int, float], count: int, direction: Direction) -> list[int]:
    """The trials of the best values, best first; of equals, the one that was drawn first."""
    sign = -1.0 if direction is Direction.maximize else 1.0
    return sorted(values, key=lambda number: (sign * values[number], number))[:count]
