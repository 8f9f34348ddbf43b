"""Measure what N updates a round cost each algorithm (arXiv:2410.18252, figures 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlhf_lab_analysis.comparison.claims import count_together
from rlhf_lab_analysis.comparison.equal_kl import Apart, Plane, at_equal_kl
from rlhf_lab_analysis.comparison.families import Family, families
from rlhf_lab_analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    Tested,
    answer,
    change,
    decide_number,
    minus,
)
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.contrasts import seeds_to_pair
from rlhf_lab_analysis.statistics.curves import areas, curve_of
from rlhf_lab_analysis.statistics.decisions import Shows, Verdict

QUESTION = "off_policyness"
FALLS = Claim(QUESTION, "More updates per round cost win-rate.", "arXiv:2410.18252, Fig. 3")
SLOWER = Claim(
    QUESTION,
    "More updates per round slow learning: the win-rate over all updates is lower.",
    "arXiv:2410.18252, Fig. 3",
)
SMALL = Claim(QUESTION, "{} updates per round cost nothing against {}.", "arXiv:2410.18252, Fig. 3")
ONE_CURVE = Claim(
    QUESTION,
    "All N lie on one curve of win-rate against KL: off-policy samples slow training, they do not "
    "spoil it.",
    "arXiv:2410.18252, Fig. 3",
)


EQUAL = Shows.equal


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
    def second(self) -> Cell:
        """The second step, of the fewest updates a round that are more than the least."""
        return self.steps[sorted(self.steps)[1]]

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


def compared(selection: Selection) -> list[tuple[Cell, ...]]:
    """The steps of each ladder, those of the fewest updates a round first."""
    return [tuple(ladder.cells) for ladder in every_ladder(selection)]


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """The claims about N of each algorithm, in every setting that has a ladder."""
    several = every_ladder(selection)
    ends = count_together([(ladder.high, ladder.low) for ladder in several])
    steps = count_together([(ladder.second, ladder.low) for ladder in several])
    found: list[Answer] = []
    for place, ladder in enumerate(several):
        found.append(falls(ladder, criteria, ends[place]))
        found.append(slower(ladder, criteria, ends[place]))
        found.append(small(ladder, criteria, steps[place]))
        # Which N has KL in common is known afterwards, so the claim is about the ladder.
        found.append(one_curve(ladder, criteria, ends[place]))
    return found


def every_ladder(selection: Selection) -> list[Ladder]:
    """All ladders: by setting, then by algorithm."""
    found = families(selection, ("updates_per_round", "algo"))
    return [ladder for family in found for ladder in ladders(family)]


def falls(ladder: Ladder, criteria: Criteria, count: int) -> Answer:
    """Whether the most updates a round end below the least."""
    ends = ladder.high.scores(criteria.quality), ladder.low.scores(criteria.quality)
    number = Number(f"{ladder.algo}, {ladder.ends}", change(*ends, count))
    made = decide_number(number, Shows.below, criteria.margin)
    evidence = f"{ladder.ends}: {made.evidence}"
    return answer(FALLS, criteria, [ladder.high, ladder.low], made.verdict, [number], evidence)


def slower(ladder: Ladder, criteria: Criteria, count: int) -> Answer:
    """Whether the mean win-rate over the updates, which no ceiling hides, is lower."""
    after = on_average(ladder.high, ladder.low, criteria)
    before = on_average(ladder.low, ladder.high, criteria)
    label = f"mean over all updates, {ladder.ends}"
    if not after or not before:
        evidence = f"{label}: no versions of as many updates were evaluated of both"
        cells = [ladder.high, ladder.low]
        return answer(SLOWER, criteria, cells, Verdict.cannot_tell, [], evidence)
    number = Number(f"{ladder.algo}, {label}", change(after, before, count))
    made = decide_number(number, Shows.below, criteria.margin)
    return answer(
        SLOWER,
        criteria,
        [ladder.high, ladder.low],
        made.verdict,
        [number],
        f"{label}: {made.evidence}",
    )


def on_average(cell: Cell, other: Cell, criteria: Criteria) -> dict[int, float]:
    """The area under a run's curve over updates, divided by their number, from versions of as many
    updates as the other has some: a finer curve would be another measure. A run with fewer than
    two of these is left out."""
    theirs = {x for xs, _ in other.paths("x/updates", criteria.quality).values() for x in xs}
    found = {}
    for seed, (xs, ys) in cell.paths("x/updates", criteria.quality).items():
        shared = [(x, y) for x, y in zip(xs, ys, strict=True) if x in theirs]
        if len(shared) < 2:
            continue
        x, y = zip(*shared, strict=True)
        found[seed] = float(areas([curve_of(f"seed {seed}", x, y)])[0][0])
    return found


def small(ladder: Ladder, criteria: Criteria, count: int) -> Answer:
    """Whether the second step of the ladder ends within the margin of the first."""
    first, second = sorted(ladder.steps)[:2]
    scores = ladder.second.scores(criteria.quality), ladder.low.scores(criteria.quality)
    number = Number(f"{ladder.algo}, N={second} against N={first}", change(*scores, count, EQUAL))
    made = decide_number(number, EQUAL, criteria.margin)
    evidence = f"N={second} against N={first}: {made.evidence}, {criteria.margin_text}"
    claim = replace(SMALL, text=SMALL.text.format(second, first))
    return answer(claim, criteria, [ladder.second, ladder.low], made.verdict, [number], evidence)


def at_shared_kl(ladder: Ladder, criteria: Criteria) -> tuple[Cell, dict[int, Apart]]:
    """The largest N of which every seed that it shares with the least N has KL in common with it,
    and how far they are apart; of none the largest N and nothing.

    A run that is lost leaves its seed out, here as in all pairs. A seed without KL in common does
    not: to leave it out would be to choose seeds by what happened in them.
    """
    plane = Plane(criteria.quality, criteria.drift)
    for _, cell in sorted(ladder.steps.items(), reverse=True)[:-1]:
        found = at_equal_kl(cell, ladder.low, plane)
        seeds = seeds_to_pair(cell.seeds, ladder.low.seeds)
        if seeds and set(found) == set(seeds):
            return cell, found
    return ladder.high, {}


def one_curve(ladder: Ladder, criteria: Criteria, count: int) -> Answer:
    """Whether the frontier of an N lies within the margin of that of the least at equal KL."""
    cell, found = at_shared_kl(ladder, criteria)
    if not found:
        evidence = (
            "no evaluated versions have a KL in common: evaluate more of them (eval.snapshots)"
        )
        return answer(ONE_CURVE, criteria, ladder.cells, Verdict.cannot_tell, [], evidence)
    distances = {seed: one.distance for seed, one in found.items()}
    ends = f"N={cell.parts['updates_per_round']} against N={min(ladder.steps)}"
    estimate = change(distances, dict.fromkeys(found, 0.0), count, EQUAL)
    number = Number(f"{ladder.algo}, {ends}, at equal KL", estimate)
    made: Tested = decide_number(number, EQUAL, criteria.margin)
    spans = [one.span for one in found.values()]
    evidence = (
        f"{ends}, over {min(spans):.1f} to {max(spans):.1f} nats that both runs of a seed have in "
        f"common: {made.evidence}, {criteria.margin_text}"
    )
    return answer(ONE_CURVE, criteria, [cell, ladder.low], made.verdict, [number], evidence)
