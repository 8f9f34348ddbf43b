"""Compare sync and async: quality and wall-clock (arXiv:2410.18252, figure 1)."""

from __future__ import annotations

import math

from rlhf_lab_analysis.comparison.claims import Pair, count_together
from rlhf_lab_analysis.comparison.families import families
from rlhf_lab_analysis.comparison.questions.answers import (
    Answer,
    Claim,
    Criteria,
    Number,
    Unit,
    answer,
    change,
    decide_number,
)
from rlhf_lab_analysis.comparison.questions.equal_cost import at_equal_cost
from rlhf_lab_analysis.comparison.selection import Cell, Selection
from rlhf_lab_analysis.statistics.contrasts import speed_up
from rlhf_lab_analysis.statistics.decisions import Shows, Verdict, decide, options_of
from rlhf_lab_analysis.statistics.results import Estimate

QUESTION = "asynchrony"
EQUAL = Claim(
    QUESTION,
    "Generating one round ahead costs no win-rate.",
    "arXiv:2410.18252, Fig. 1, Tab. 6",
)
FASTER = Claim(
    QUESTION, "It needs less wall-clock for the same updates.", "arXiv:2410.18252, Fig. 1"
)
SOONER = Claim(
    QUESTION, "At equal wall-clock async has the higher win-rate.", "arXiv:2410.18252, Fig. 1"
)
GROWS = Claim(QUESTION, "The larger the model, the more it buys.", "arXiv:2410.18252, Fig. 1")
WALL = "x/wall_seconds"


def compared(selection: Selection) -> list[Pair]:
    """Sync and async with one round ahead, at every scale that has both."""
    return [
        (cells["sync"], cells["async"])
        for family in families(selection, ("mode",))
        for cells in [family.line("mode")]
        if {"sync", "async"} <= set(cells) and cells["async"].parts["max_staleness"] == 1
    ]


def ask(selection: Selection, criteria: Criteria) -> list[Answer]:
    """Sync against async with one round ahead, at every scale that has both."""
    pairs = compared(selection)
    found = []
    counts = count_together([(ahead, sync) for sync, ahead in pairs])
    for pair, count in zip(pairs, counts, strict=True):
        found += [one(*pair, criteria, count) for one in (equal, faster, sooner)]
    return found + grows(pairs, criteria)


def equal(sync: Cell, ahead: Cell, criteria: Criteria, count: int) -> Answer:
    """Whether the win-rate is the same within the margin."""
    scores = ahead.scores(criteria.quality), sync.scores(criteria.quality)
    number = Number(f"{name(sync)}, async less sync", change(*scores, count, Shows.equal))
    made = decide_number(number, Shows.equal, criteria.margin)
    evidence = f"async less sync: {made.evidence}, {criteria.margin_text}"
    return answer(EQUAL, criteria, [sync, ahead], made.verdict, [number], evidence)


def faster(sync: Cell, ahead: Cell, criteria: Criteria, count: int) -> Answer:
    """The ratio of wall-clocks, and what overlap alone would allow."""
    made = ratio(sync, ahead, count)
    numbers = [Number(f"{name(sync)}, wall-clock sync / async", made, Unit.times)]
    evidence = f"wall-clock of sync over async: {numbers[0].text}"
    if (bound := ideal(sync)) is not None:
        evidence += f"; (g + t) / max(g, t) of sync's own seconds: {bound:.2f}"
    return answer(FASTER, criteria, [sync, ahead], above_one(made), numbers, evidence)


def sooner(sync: Cell, ahead: Cell, criteria: Criteria, count: int) -> Answer:
    """Async less sync when both have run as long as the quickest run took."""
    numbers = [
        at_equal_cost(ahead, sync, WALL, criteria, count, Shows.above),
        # Who may hold as many devices asks whether it is the same, which takes another interval.
        at_equal_cost(ahead, sync, "x/device_hours", criteria, count, Shows.equal),
    ]
    made = decide_number(numbers[0], Shows.above, criteria.margin)
    evidence = f"{numbers[0].label}: {made.evidence}; {numbers[1].label}: {numbers[1].text}"
    return answer(SOONER, criteria, [sync, ahead], made.verdict, numbers, evidence)


def ratio(sync: Cell, ahead: Cell, count: int) -> Estimate:
    return speed_up(sync.at_end(WALL), ahead.at_end(WALL), options_of(Shows.above, count))


def above_one(made: Estimate) -> Verdict:
    """Whether a ratio is above 1: its logarithm above 0, for which no margin is stated."""
    point, low, high = (math.log(value) for value in (made.point, made.low, made.high))
    return decide(Estimate(made.name, point, low, high, made.basis), Shows.above, 0.0)


def ideal(sync: Cell) -> float | None:
    """What perfect overlap of taking samples (generating and scoring, which async's generator does)
    and the rest would give, from sync's own seconds; None without them."""
    seconds = sync.last_recorded("seconds/take")
    if set(seconds) != set(sync.seeds):
        return None
    take, whole = mean(seconds), mean(sync.last_recorded("seconds/wall"))
    rest = whole - take
    return whole / max(take, rest) if take > 0 and rest > 0 else None


def mean(by_seed: dict[int, float]) -> float:
    return sum(by_seed.values()) / len(by_seed)


def grows(pairs: list[Pair], criteria: Criteria) -> list[Answer]:
    """Whether the speed-up of the largest model is above that of the smallest."""
    by_size = sorted(pairs, key=lambda pair: mean(pair[0].at_end("x/flops")))
    if len(by_size) < 2:
        return []
    small, large = by_size[0], by_size[-1]
    made = change(log_ratio(*large), log_ratio(*small))
    point, low, high = (math.exp(value) for value in (made.point, made.low, made.high))
    times = Estimate(made.name, point, low, high, made.basis)
    label = f"speed-up of {name(large[0])} / that of {name(small[0])}"
    number = Number(label, times, Unit.times)
    cells = [*small, *large]
    evidence = f"{label}: {number.text}"
    return [answer(GROWS, criteria, cells, above_one(times), [number], evidence)]


def log_ratio(sync: Cell, ahead: Cell) -> dict[int, float]:
    """log(sync / async) of the wall-clock of each common seed."""
    after = ahead.at_end(WALL)
    return {
        seed: math.log(value / after[seed])
        for seed, value in sync.at_end(WALL).items()
        if seed in after
    }


def name(cell: Cell) -> str:
    return str(cell.parts["model"] or cell.env)
