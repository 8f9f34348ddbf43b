"""What N updates on one round cost, by algorithm: arXiv:2410.18252, figures 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.equal_kl import Plane, at_equal_kl
from analysis.questions.answers import (
    Answer,
    Asked,
    Claim,
    Number,
    Verdict,
    answer,
    change,
    every,
    is_above,
    is_below,
    is_nothing,
    minus,
)
from analysis.questions.families import Family, families
from analysis.selection import Cell, Selection
from analysis.statistics.curves import areas, curve_of
from analysis.statistics.results import Estimate

QUESTION = "off_policyness"
FALLS = Claim(QUESTION, "More updates per round cost win-rate.", "arXiv:2410.18252, Fig. 3")
SLOWER = Claim(
    QUESTION,
    "More updates per round slow learning: the win-rate over all updates is lower.",
    "arXiv:2410.18252, Fig. 3",
)
SMALL = Claim(QUESTION, "A few updates per round cost nothing.", "arXiv:2410.18252, Fig. 3")
ONE_CURVE = Claim(
    QUESTION,
    "All N lie on one curve of win-rate against KL: off-policy samples slow training, they do not "
    "spoil it.",
    "arXiv:2410.18252, Fig. 3",
)
ORDER = Claim(
    QUESTION, "Online DPO loses the least to off-policy samples.", "arXiv:2410.18252, Fig. 4"
)
LEARNS = Claim(
    QUESTION,
    "At the largest N online DPO alone still learns.",
    "arXiv:2410.18252, text to Fig. 4",
)
PREFERRED = "online_dpo"


@dataclass(frozen=True, eq=False)
class Ladder:
    """Conditions of one algorithm along N. low, high: the least and the most updates a round."""

    algo: str
    steps: dict[int, Cell]

    @property
    def low(self) -> Cell:
        return self.steps[min(self.steps)]

    @property
    def high(self) -> Cell:
        return self.steps[max(self.steps)]

    @property
    def cells(self) -> list[Cell]:
        return list(self.steps.values())

    @property
    def ends(self) -> str:
        return f"N={max(self.steps)} against N={min(self.steps)}"

    def loss(self, quality: str) -> dict[int, float]:
        """What the most updates a round cost each seed."""
        return minus(self.low.scores(quality), self.high.scores(quality))


def ladders(family: Family) -> list[Ladder]:
    """The algorithms of a family that have more than one N."""
    found = [Ladder(a, family.line("updates_per_round", algo=a)) for a in family.values("algo")]
    return [ladder for ladder in found if len(ladder.steps) > 1]


def ask(selection: Selection, asked: Asked) -> list[Answer]:
    """The claims about N in every setting that has a ladder."""
    found: list[Answer] = []
    for family in families(selection, ("updates_per_round", "algo")):
        several = ladders(family)
        for ladder in several:
            found.append(falls(ladder, asked, len(several)))
            found.append(slower(ladder, asked, len(several)))
            found.append(small(ladder, asked, len(several)))
            found.append(one_curve(ladder, asked, len(several)))
        preferred = [ladder for ladder in several if ladder.algo == PREFERRED]
        others = [ladder for ladder in several if ladder.algo != PREFERRED]
        if preferred and others:
            found += [
                order(preferred[0], others, asked),
                learns(preferred[0], others, asked),
            ]
    return found


def falls(ladder: Ladder, asked: Asked, together: int) -> Answer:
    """Whether the most updates a round end below the least."""
    ends = ladder.high.scores(asked.quality), ladder.low.scores(asked.quality)
    made = change(*ends, together)
    number = Number(f"{ladder.algo}, {ladder.ends}", made)
    reason = f"{ladder.ends}: {number.text}"
    return answer(FALLS, asked, ladder.cells, is_below(made, asked.margin), [number], reason)


def slower(ladder: Ladder, asked: Asked, together: int) -> Answer:
    """Whether the mean win-rate over the updates, which no ceiling hides, is lower."""
    after = on_average(ladder.high, ladder.low, asked)
    before = on_average(ladder.low, ladder.high, asked)
    made = change(after, before, together)
    number = Number(f"{ladder.algo}, mean over all updates, {ladder.ends}", made)
    reason = f"mean over all updates, {ladder.ends}: {number.text}"
    return answer(SLOWER, asked, ladder.cells, is_below(made, asked.margin), [number], reason)


def on_average(cell: Cell, other: Cell, asked: Asked) -> dict[int, float]:
    """The area under a run's curve over updates, divided by their number, from versions of as many
    updates as the other has some: a finer curve would be another measure."""
    theirs = {x for xs, _ in other.paths("x/updates", asked.quality).values() for x in xs}
    found = {}
    for seed, (xs, ys) in cell.paths("x/updates", asked.quality).items():
        x, y = zip(*((x, y) for x, y in zip(xs, ys, strict=True) if x in theirs), strict=True)
        found[seed] = float(areas([curve_of(f"seed {seed}", x, y)])[0][0])
    return found


def small(ladder: Ladder, asked: Asked, together: int) -> Answer:
    """Whether the second step of the ladder ends within the margin of the first."""
    first, second = sorted(ladder.steps)[:2]
    cells = [ladder.steps[second], ladder.steps[first]]
    after, before = (cell.scores(asked.quality) for cell in cells)
    made = change(after, before, together, sides=1)
    number = Number(f"{ladder.algo}, N={second} against N={first}", made)
    reason = f"N={second} against N={first}: {number.text}, margin {100 * asked.margin:g} points"
    return answer(SMALL, asked, cells, is_nothing(made, asked.margin), [number], reason)


def one_curve(ladder: Ladder, asked: Asked, together: int) -> Answer:
    """Whether the frontier of the largest N that has KL in common with the least, in every seed,
    lies within the margin of it at equal KL."""
    low, several = ladder.low, [cell for _, cell in sorted(ladder.steps.items())[1:]]
    plane = Plane(asked.quality, asked.drift)
    ahead = [(cell, at_equal_kl(cell, low, plane)) for cell in several]
    common = [(cell, found) for cell, found in ahead if set(found) == set(low.seeds)]
    if not common:
        reason = "no evaluated versions have a KL in common: evaluate more of them (eval.snapshots)"
        return answer(ONE_CURVE, asked, [low, *several], Verdict.cannot_tell, [], reason)
    cell, found = common[-1]
    made = change(
        {seed: one.distance for seed, one in found.items()},
        dict.fromkeys(found, 0.0),
        together,
        sides=1,
    )
    ends = f"N={cell.parts['updates_per_round']} against N={min(ladder.steps)}"
    number = Number(f"{ladder.algo}, {ends}, at equal KL", made)
    spans = [one.span for one in found.values()]
    reason = (
        f"{ends}, over {min(spans):.1f} to {max(spans):.1f} nats that both runs of a seed have in "
        f"common: {number.text}, margin {100 * asked.margin:g} points"
    )
    verdict = is_nothing(made, asked.margin)
    return answer(ONE_CURVE, asked, [cell, low], verdict, [number], reason)


def order(preferred: Ladder, others: Sequence[Ladder], asked: Asked) -> Answer:
    """Whether every other algorithm loses more."""
    own = preferred.loss(asked.quality)
    changes = {one.algo: change(one.loss(asked.quality), own, len(others)) for one in others}
    verdict = every(is_above(made, asked.margin) for made in changes.values())
    numbers = [
        Number(f"loss of {algo} less that of {PREFERRED}, {preferred.ends}", made)
        for algo, made in changes.items()
    ]
    reason = "; ".join(
        f"{algo} loses {number.text} more" for algo, number in zip(changes, numbers, strict=True)
    )
    return answer(ORDER, asked, all_cells(preferred, others), verdict, numbers, reason)


def learns(preferred: Ladder, others: Sequence[Ladder], asked: Asked) -> Answer:
    """Whether the preferred one gains on its start at the largest N, and no other does."""
    together = len(others) + 1
    gains = {one.algo: gain(one.high, asked, together) for one in (preferred, *others)}
    own = is_above(gains[PREFERRED], asked.margin)
    rest = [opposite(is_above(gains[one.algo], asked.margin)) for one in others]
    numbers = [Number(f"{algo}, gain over SFT", made) for algo, made in gains.items()]
    reason = f"gain over SFT at N={max(preferred.steps)}: " + "; ".join(
        f"{algo} {number.text}" for algo, number in zip(gains, numbers, strict=True)
    )
    cells = [one.high for one in (preferred, *others)]
    return answer(LEARNS, asked, cells, every([own, *rest]), numbers, reason)


def gain(cell: Cell, asked: Asked, together: int) -> Estimate:
    return change(cell.scores(asked.quality), cell.starts(asked.quality), together)


def opposite(verdict: Verdict) -> Verdict:
    swapped = {
        Verdict.holds: Verdict.does_not_hold,
        Verdict.does_not_hold: Verdict.holds,
    }
    return swapped.get(verdict, verdict)


def all_cells(preferred: Ladder, others: Sequence[Ladder]) -> list[Cell]:
    return [cell for ladder in (preferred, *others) for cell in (ladder.low, ladder.high)]
