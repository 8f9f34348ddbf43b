"""Say first what sync and async of the same setting took, and what they reached."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.cell import Cell, Key
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.comparisons import chosen_by, pairs
from rlhf_lab_analysis.comparison.registry.questions import Answers, claim_named
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.words import WALL, is_share, label

MOST = 3
# Claims of any runs.
EQUAL, FASTER = "async_costs_nothing", "async_is_faster"
ONE_SEED = "one seed: no interval"


@dataclass(frozen=True)
class Headline:
    """What one setting's sync and async took. text: the comparison in one sentence; interval: of
    the ratio, or why there is none. texts: seconds, and quality. conditions: the keys of both."""

    where: str
    text: str
    interval: str
    texts: Sequence[str]
    conditions: tuple[Key, Key]


def headlines(selection: Selection, answers: Answers, criteria: Criteria) -> list[Headline]:
    """One for each setting that has sync and async, three at most, those of most seeds first."""
    claim = claim_named(EQUAL)
    compared = sorted(
        (pair for pair, *_ in pairs(claim, chosen_by(claim, selection))),
        key=lambda pair: -len({*pair[0].seeds} & {*pair[1].seeds}),
    )
    found = [headline(*pair, answers, criteria) for pair in compared]
    return [one for one in found if one is not None][:MOST]


def headline(sync: Cell, ahead: Cell, answers: Answers, criteria: Criteria) -> Headline | None:
    """None where a run has no wall-clock."""
    if not (sync.has(WALL) and ahead.has(WALL)):
        return None
    seconds = mean(sync.at_end(WALL)), mean(ahead.at_end(WALL))
    keys = (sync.key, ahead.key)
    decided = [one for one in answers.every if {*one.conditions} == {*keys}]
    faster = claim_named(FASTER).row["text"]
    found = next((one for one in decided if one.claim == faster), None)
    ratio = found.numbers[0].estimate.point if found else seconds[0] / seconds[1]
    numbers = found.numbers[0].text if found else f"{ratio:.2f} times, {reason(sync, ahead)}"
    texts = [f"wall-clock {number_text(seconds[1])} s against {number_text(seconds[0])} s"]
    if sync.has(criteria.quality) and ahead.has(criteria.quality):
        texts.append(quality_text(sync, ahead, criteria))
    texts += [f"{one.verdict}: {one.claim.rstrip('.')}" for one in decided]
    where = sync.title(("algo", "model", "task", "updates_per_round")) or sync.env
    return Headline(where, speed_text(ratio), f"sync / async: {numbers}", texts, keys)


def speed_text(ratio: float) -> str:
    """In which direction sync and async differ."""
    if ratio >= 1:
        return f"async needs {ratio:.2f} times less wall-clock than sync"
    return f"async needs {1 / ratio:.2f} times the wall-clock of sync"


def quality_text(sync: Cell, ahead: Cell, criteria: Criteria) -> str:
    """What both reached, in the metric of the page."""
    ends = [mean(cell.scores(criteria.quality)) for cell in (ahead, sync)]
    text = f"{label(criteria.quality)} {number_text(ends[0])} against {number_text(ends[1])}"
    if not is_share(criteria.quality):
        return text
    return f"{text} ({100 * (ends[0] - ends[1]):+.1f} points)"


def reason(sync: Cell, ahead: Cell) -> str:
    """Why the ratio has no interval."""
    common = set(sync.seeds) & set(ahead.seeds)
    return ONE_SEED if len(common) == 1 else f"{len(common)} common seeds: no interval"


def mean(by_seed: dict[int, float]) -> float:
    return math.fsum(by_seed.values()) / len(by_seed)
