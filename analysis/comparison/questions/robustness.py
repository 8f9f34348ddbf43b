"""Compare how much algorithms lose to off-policy samples (arXiv:2410.18252, figure 4).

These claims have several parts: a claim holds if every part holds at its own level, and fails if
any part fails at the level corrected for their number (`decisions.all_of`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.families import families
from rlhf_lab_analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    Tested,
    answer,
    change,
    decide_number,
)
from rlhf_lab_analysis.comparison.questions.off_policyness import QUESTION, Ladder, ladders
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.contrasts import BySeed
from rlhf_lab_analysis.statistics.decisions import NO_WIDTH, Shows, Verdict, all_of, has_width

ORDER = Claim(
    QUESTION, "Online DPO loses the least to off-policy samples.", "arXiv:2410.18252, Fig. 4"
)
LEARNS = Claim(
    QUESTION,
    "At the largest N online DPO alone still learns.",
    "arXiv:2410.18252, text to Fig. 4",
)
PREFERRED = "online_dpo"
# The verdict on "does not learn" by that on "learns": a gain within the margin is no gain.
OPPOSITE = {
    Verdict.holds: Verdict.does_not_hold,
    Verdict.negligible: Verdict.holds,
    Verdict.does_not_hold: Verdict.holds,
    Verdict.cannot_tell: Verdict.cannot_tell,
}


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a claim: that the first is above the second, or, if denied, that it is not."""

    label: str
    first: BySeed
    second: BySeed
    is_denied: bool = False

    def test(self, margin: float, together: int) -> Tested:
        """The verdict on this part, one of `together` parts whose intervals hold at once."""
        estimate = change(self.first, self.second, together, Shows.above)
        made = decide_number(Number(self.label, estimate), Shows.above, margin)
        return Tested(made.number, OPPOSITE[made.verdict] if self.is_denied else made.verdict)


def compared(selection: Selection) -> list[tuple[Cell, ...]]:
    """The ends of the ladders of the preferred algorithm and of the others beside it."""
    found = []
    for family in families(selection, ("updates_per_round", "algo")):
        several = {ladder.algo: ladder for ladder in ladders(family)}
        if PREFERRED in several and len(several) > 1:
            ordered = [several.pop(PREFERRED), *several.values()]
            found.append(tuple(cell for one in ordered for cell in (one.low, one.high)))
    return found


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Both claims, wherever the preferred algorithm has a ladder beside others."""
    found = []
    for family in families(selection, ("updates_per_round", "algo")):
        several = {ladder.algo: ladder for ladder in ladders(family)}
        preferred = several.pop(PREFERRED, None)
        if preferred and several:
            found += [
                answer_order(preferred, list(several.values()), criteria),
                answer_learning(preferred, list(several.values()), criteria),
            ]
    return found


def decide_parts(parts: Mapping[str, Part], margin: float) -> tuple[Verdict, dict[str, Tested]]:
    """The verdict of all parts, and the intervals that it stands on: those of each part by itself,
    or, where the claim fails, those that hold together."""
    single = {name: part.test(margin, 1) for name, part in parts.items()}
    joint = {name: part.test(margin, len(parts)) for name, part in parts.items()}
    verdict = all_of(
        [one.verdict for one in single.values()], [one.verdict for one in joint.values()]
    )
    return verdict, joint if verdict is Verdict.does_not_hold else single


def answer_order(preferred: Ladder, others: Sequence[Ladder], criteria: Criteria) -> Answer:
    """Whether every other algorithm loses more."""
    own = preferred.loss(criteria.quality)
    parts = {
        one.algo: Part(
            f"loss of {one.algo} less that of {PREFERRED}, {preferred.ends}",
            one.loss(criteria.quality),
            own,
        )
        for one in others
    }
    verdict, made = decide_parts(parts, criteria.margin)
    losses = "; ".join(f"{algo} loses {one.number.text} more" for algo, one in made.items())
    cells = [cell for one in (preferred, *others) for cell in (one.low, one.high)]
    return answer_of_parts(ORDER, criteria, cells, verdict, made, f"{preferred.ends}: {losses}")


def answer_learning(preferred: Ladder, others: Sequence[Ladder], criteria: Criteria) -> Answer:
    """Whether the preferred one gains on its start at the largest N, and no other does."""
    parts = {
        one.algo: Part(
            f"{one.algo}, gain over SFT",
            one.high.ways_end(criteria.quality),
            one.high.starts(criteria.quality),
            is_denied=one is not preferred,
        )
        for one in (preferred, *others)
    }
    verdict, made = decide_parts(parts, criteria.margin)
    gains = "; ".join(f"{algo} {one.number.text}" for algo, one in made.items())
    cells = [one.high for one in (preferred, *others)]
    evidence = f"gain over SFT at N={max(preferred.steps)}: {gains}"
    return answer_of_parts(LEARNS, criteria, cells, verdict, made, evidence)


def answer_of_parts(
    claim: Claim,
    criteria: Criteria,
    cells: Sequence[Cell],
    verdict: Verdict,
    made: Mapping[str, Tested],
    evidence: str,
) -> Answer:
    numbers = [one.number for one in made.values()]
    if any(not has_width(number.estimate) for number in numbers):
        evidence = f"{evidence}: {NO_WIDTH}"
    return answer(claim, criteria, cells, verdict, numbers, evidence)
