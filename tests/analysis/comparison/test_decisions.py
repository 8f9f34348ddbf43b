"""One rule of pairs, levels and verdicts; intervals that keep to their range; power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.cell import Cell
from rlhf_lab_analysis.comparison.claims import count_together
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.statistics.arrays import Floats
from rlhf_lab_analysis.statistics.contrasts import difference, in_pairs, matched
from rlhf_lab_analysis.statistics.decisions import (
    Finding,
    Shows,
    Verdict,
    all_of,
    decide,
    finding_of,
    options_of,
)
from rlhf_lab_analysis.statistics.intervals import ends
from rlhf_lab_analysis.statistics.power import Aim, chance_of_verdict, least, power
from rlhf_lab_analysis.statistics.results import Basis, Estimate, Method, Options
from tests.support.question_records import Made
from tests.support.table_records import tables

ENDS = (0.80, 0.82, 0.85)


def span(low: float, high: float) -> Estimate:
    return Estimate("x", (low + high) / 2, low, high, Basis((5,), 1, Options()))


@pytest.mark.parametrize(
    ("low", "high", "below", "equal", "not_worse", "finding"),
    [
        (-9.0, -3.0, "holds", "does not hold", "does not hold", "worse"),
        (-9.0, -1.0, "holds", "cannot tell", "cannot tell", "not shown"),
        (-1.5, -0.5, "holds, negligible", "holds", "holds", "equal"),
        (-1.5, 1.5, "does not hold", "holds", "holds", "equal"),
        (-9.0, 9.0, "cannot tell", "cannot tell", "cannot tell", "not shown"),
        (0.5, 9.0, "does not hold", "cannot tell", "holds", "not shown"),
        (3.0, 9.0, "does not hold", "does not hold", "holds", "better"),
        (-3.0, -3.0, "cannot tell", "cannot tell", "cannot tell", "not shown"),
        (0.0, 0.0, "cannot tell", "cannot tell", "cannot tell", "not shown"),
    ],
)
def test_what_an_interval_decides_at_a_margin_of_2(
    low: float, high: float, below: str, equal: str, not_worse: str, finding: str
) -> None:
    made = span(low, high)
    verdicts = [decide(made, shows, 2.0) for shows in (Shows.below, Shows.equal, Shows.not_worse)]
    assert verdicts == [below, equal, not_worse]
    assert decide(span(-high, -low), Shows.above, 2.0) == below
    assert finding_of(made, 2.0) is Finding(finding)


def test_levels_are_shared_by_comparisons_that_hold_together() -> None:
    assert options_of(Shows.below).text == options_of(Shows.above).text == "95% t"
    assert options_of(Shows.equal).text == options_of(Shows.not_worse).text == "90% t"
    assert [options_of(Shows.below, 4).percent, options_of(Shows.equal, 4).percent] == [
        "98.75%", "97.5%",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"level=0.4: one-sided tests need more than 0.5"):
        options_of(Shows.equal, level=0.4)


def test_a_claim_of_parts_holds_by_each_and_fails_by_any_after_correction() -> None:
    yes, no, open_, small = (
        Verdict.holds, Verdict.does_not_hold, Verdict.cannot_tell, Verdict.negligible,
    )  # fmt: skip
    assert all_of([yes, yes], [open_, open_]) is yes
    assert all_of([yes, small], [open_, open_]) is small
    assert all_of([yes, no], [yes, open_]) is open_, "it failed by chance among several parts"
    assert all_of([yes, no], [yes, no]) is no
    assert all_of([yes, open_], [yes, open_]) is open_


def cells_of(*conditions: Made) -> tuple[Cell, ...]:
    runs = [run for one in conditions for run in one.runs(ENDS)]
    by_name = {cell.condition: cell for cell in cells(tables(*runs)).cells}
    return tuple(by_name[name] for name in by_name)


def test_one_change_is_one_claim_under_all_algorithms_and_models() -> None:
    def pair(after: int, **parts: str) -> tuple[Cell, Cell]:
        found = cells_of(Made(per_round=after, **parts), Made(**parts))  # type: ignore[arg-type]
        high, low = sorted(found, key=lambda cell: -cell.parts["updates_per_round"])
        return high, low

    ppo, dpo, large = pair(4, algo="ppo"), pair(4, algo="online_dpo"), pair(4, model="nano_l")
    assert count_together([ppo, dpo, large]) == [3, 3, 3]
    assert count_together([ppo, ppo]) == [1, 1], "the same comparison of two sweeps"
    assert count_together([ppo, pair(16, algo="online_dpo")]) == [1, 1], (
        "another N is another claim"
    )
    assert count_together([ppo, pair(4, algo="online_dpo", schedule="round")]) == [1, 1]
    other = (dpo[1], ppo[1])
    assert count_together([ppo, other]) == [1, 1], "a change of the algorithm is no change of N"


def test_pairs_are_made_of_three_common_seeds_or_of_equal_ones() -> None:
    whole = {1: 0.8, 2: 0.5, 3: 0.9, 4: 0.7}
    lost = {seed: value + 0.01 * seed for seed, value in whole.items() if seed != 2}
    made = matched(lost, whole)
    assert made.is_paired and made.seeds == (1, 3, 4)
    assert made.warnings == ("left out of the pairs, as one condition alone has them: seeds [2]",)
    same = difference(in_pairs(lost, {s: whole[s] for s in lost}), Options(method=Method.t))
    found = difference(made, Options(method=Method.t))
    assert (found.low, found.high) == (same.low, same.high)
    assert not matched({1: 0.1, 2: 0.2}, {1: 0.1, 2: 0.3, 3: 0.4}).is_paired
    assert matched({1: 0.1, 2: 0.2}, {2: 0.1, 1: 0.3}).is_paired


def shares(values: list[float]) -> tuple[Floats, list[Floats]]:
    found = np.array(values)
    without = (found.sum() - found) / (len(found) - 1)
    return np.array([found.mean()]), [without[:, None]]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9))
def test_log_odds_stay_within_0_to_1(values: list[float]) -> None:
    point_M, without = shares(values)
    low, high = ends(point_M, np.empty((0, 1)), without, Options(method=Method.logit))
    assert 0 <= low[0] <= point_M[0] + 1e-12 and point_M[0] - 1e-12 <= high[0] <= 1


def test_log_odds_are_worked_out_by_hand_and_refuse_what_is_no_share() -> None:
    point_M, without = shares([0.7, 0.8, 0.9])
    low, high = ends(point_M, np.empty((0, 1)), without, Options(method=Method.logit))
    half = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3) / (0.8 * 0.2)
    expected = [1 / (1 + math.exp(-(math.log(4) + sign * half))) for sign in (-1, 1)]
    assert [low[0], high[0]] == pytest.approx(expected)
    with pytest.raises(UserError, match=r"method=logit: \[1.3\] is no share from 0 to 1"):
        ends(np.array([1.3]), np.empty((0, 1)), without, Options(method=Method.logit))


@pytest.mark.parametrize(
    ("spread", "seeds", "share", "for_80", "for_90"),
    # An independent simulation of 40,000 draws of each: equal within 2 points, 4 together.
    [(1.62, 5, 0.16, 11, 13), (2.39, 5, 0.04, 21, 25), (0.78, 5, 0.89, 5, 6), (0.9, 6, 0.92, 6, 6)],
)
def test_power_of_equality_is_that_of_a_simulation(
    spread: float, seeds: int, share: float, for_80: int, for_90: int
) -> None:
    aim = Aim(Shows.equal, 2.0, together=4)
    assert power(aim, spread, seeds) == pytest.approx(share, abs=0.006)
    assert [least(aim, spread, wanted, 1) for wanted in (0.8, 0.9)] == [for_80, for_90]


def test_power_of_a_difference_is_that_of_the_noncentral_t() -> None:
    for shows, truth in ((Shows.above, 3.9), (Shows.below, -3.9)):
        made = power(Aim(shows, 2.0, truth, together=4), 2.75, 5)
        bound, shift = stats.t.ppf(1 - 0.05 / 8, 4), 3.9 * math.sqrt(5) / 2.75
        assert made == pytest.approx(float(stats.nct.sf(bound, 4, shift)), abs=1e-3)
    not_worse = power(Aim(Shows.not_worse, 2.0, 0.0, together=2), 1.9, 5)
    bound = stats.t.ppf(1 - 0.05 / 2, 4)
    expected = float(stats.nct.sf(bound, 4, 2.0 * math.sqrt(5) / 1.9))
    assert not_worse == pytest.approx(expected, abs=1e-3)


# Beside no difference, and beside the margin.
OFTEN = (-0.4, 1.5)


@pytest.mark.parametrize("shows", Shows)
@pytest.mark.parametrize(
    "truth",
    [*OFTEN, *(pytest.param(x, marks=pytest.mark.slow) for x in (-5.0, -2.6, 0.0, 0.3, 4.0))],
)
def test_the_chance_of_a_verdict_is_that_of_drawn_experiments(shows: Shows, truth: float) -> None:
    seeds, drawn = 6, np.random.default_rng(3)
    aim = Aim(shows, 2.0, truth, together=2)
    verdicts = []
    for values in truth + 1.8 * drawn.standard_normal((800, seeds)):
        pairs = matched(dict(enumerate(values)), dict.fromkeys(range(seeds), 0.0))
        verdicts.append(decide(difference(pairs, options_of(shows, 2)), shows, 2.0))
    decided = 1 - verdicts.count(Verdict.cannot_tell) / len(verdicts)
    assert chance_of_verdict(aim, 1.8, seeds) == pytest.approx(decided, abs=0.05)
    if not aim.is_true:
        return
    assert chance_of_verdict(aim, 1.8, seeds) >= power(aim, 1.8, seeds) - 1e-9


def test_what_no_number_of_seeds_shows_is_refused() -> None:
    with pytest.raises(UserError, match=r"truth=-2: .*no number of seeds shows it"):
        power(Aim(Shows.not_worse, 2.0, -2.0), 1.0, 5)
    with pytest.raises(UserError, match=r"truth=0: .*no number of seeds"):
        power(Aim(Shows.below, 2.0, 0.0), 1.0, 5)
    with pytest.raises(UserError, match="more than 10000 seeds are needed"):
        least(Aim(Shows.equal, 1e-3), 1.0, 0.8, 1)
    with pytest.raises(UserError, match="spread=0: no seed differs"):
        least(Aim(Shows.equal, 2.0), 0.0, 0.8, 1)
