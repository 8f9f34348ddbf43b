"""Say first what sync and async of the same setting took, and what they reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlhf_lab_analysis.comparison.cell import Cell, Key
from rlhf_lab_analysis.comparison.names import name_of
from rlhf_lab_analysis.comparison.registry.answers import Criteria
from rlhf_lab_analysis.comparison.registry.comparisons import chosen_by, pairs
from rlhf_lab_analysis.comparison.registry.questions import Answers, claim_named
from rlhf_lab_analysis.comparison.selection import Selection
from rlhf_lab_analysis.rounding import number_text
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.words import WALL, is_share, label

MOST = 3
# The claim of any runs whose conditions they are, within one sweep.
FASTER = "async_is_faster"
UNDECIDED = "whether async is faster than sync is not decided"


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
    claim = claim_named(FASTER)
    compared = sorted(
        ((sync, ahead) for (ahead, sync), *_ in pairs(claim, chosen_by(claim, selection))),
        key=lambda pair: -len({*pair[0].seeds} & {*pair[1].seeds}),
    )
    found = [headline(*pair, answers, criteria) for pair in compared]
    return [one for one in found if one is not None][:MOST]


def headline(sync: Cell, ahead: Cell, answers: Answers, criteria: Criteria) -> Headline | None:
    """The words of the claim on wall-clock that compares these two; None where a run has none."""
    if not (sync.has(WALL) and ahead.has(WALL)):
        return None
    keys = (sync.key, ahead.key)
    decided = (
        one.answer
        for one in answers.decided
        if {*one.answer.conditions} == {*keys} and one.claim.measure.name == "wall_clock"
    )
    found = next(decided, None)
    common = sorted({*sync.seeds} & {*ahead.seeds})
    seconds = [mean(one.at_end(WALL), common or one.seeds) for one in (ahead, sync)]
    if found is None:
        ratio = seconds[1] / seconds[0]
        text, interval = speed_text(ratio), f"{ratio:.2f} times, {reason(len(common))}"
    else:
        text, interval = speed_text(found.numbers[0].estimate.point), found.numbers[0].text
        text = UNDECIDED if found.verdict is Verdict.cannot_tell else text
    took = " against ".join(f"{one:.3g} s" for one in seconds)
    texts = [f"wall-clock {took}"]
    if sync.has(criteria.quality) and ahead.has(criteria.quality):
        texts.append(quality_text(sync, ahead, criteria))
    where = name_of(sync, ("algo", "model", "task", "updates_per_round"))
    return Headline(where, text, f"sync / async: {interval}", texts, keys)


def speed_text(ratio: float) -> str:
    """In which direction sync and async differ."""
    if ratio >= 1:
        return f"async is {ratio:.2f} times as fast as sync"
    return f"async takes {1 / ratio:.2f} times the wall-clock of sync"


def quality_text(sync: Cell, ahead: Cell, criteria: Criteria) -> str:
    """What both reached, in the metric of the page."""
    common = sorted({*sync.seeds} & {*ahead.seeds})
    ends = [mean(one.scores(criteria.quality), common or one.seeds) for one in (ahead, sync)]
    text = f"{label(criteria.quality)} {number_text(ends[0])} against {number_text(ends[1])}"
    if not is_share(criteria.quality):
        return text
    # Adding 0 turns the negative zero of a rounded number into 0.
    return f"{text} ({round(100 * (ends[0] - ends[1]), 1) + 0:+.1f} points)"


def reason(common: int) -> str:
    """Why the ratio has no interval."""
    return "one seed: no interval" if common == 1 else f"{common} common seeds: no interval"


def mean(by_seed: Mapping[int, float], seeds: Sequence[int]) -> float:
    """Over some of the seeds."""
    return math.fsum(by_seed[seed] for seed in seeds) / len(seeds)
