"""The law of quality over compute: known parameters, coverage, refusals, and what moves."""

from __future__ import annotations

import numpy as np
import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.curves import RunCurve, curve_of
from rlhf_lab_analysis.statistics.scaling import Law, Moves, compare_laws, fit_law, fitted_law

X = np.array([2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
TRUE = Law(0.5, 12.0, 1.5)


def seeds_of(law: Law, count: int = 6, noise: float = 0.01, seed: int = 0) -> dict[int, RunCurve]:
    """Curves of a law; each seed has a ceiling of its own and errors at each point."""
    rng = np.random.default_rng(seed)
    found = {}
    for number in range(count):
        own = Law(law.ceiling * (1 + 0.05 * rng.standard_normal()), law.middle, law.steepness)
        y = own.at(X) + noise * rng.standard_normal(len(X))
        found[number] = curve_of(f"seed {number}", X, y)
    return found


def test_the_law_by_hand() -> None:
    # Half of the ceiling at C_mid; at twice that 1 / (1 + 2^-1.5) of it.
    assert TRUE.at(np.array([12.0, 24.0])) == pytest.approx([0.25, 0.5 / (1 + 2**-1.5)])


def test_exact_curves_give_their_parameters_back() -> None:
    law = fit_law([curve_of("one", X, TRUE.at(X))])
    assert (law.ceiling, law.middle, law.steepness) == pytest.approx((0.5, 12.0, 1.5), rel=1e-4)


def test_intervals_cover_the_truth_as_often_as_they_state() -> None:
    """95% intervals of 40 simulated conditions: 35 or more of 40 have probability 0.98 (binomial),
    and 33 leaves room for the approximation of few seeds."""
    covered = np.zeros(3)
    truth = np.array([TRUE.ceiling, TRUE.middle, TRUE.steepness])
    for number in range(40):
        intervals = np.array(fitted_law(seeds_of(TRUE, seed=number)).intervals)
        covered += (intervals[:, 0] <= truth) & (truth <= intervals[:, 1])
    assert (covered >= 33).all(), covered
    # They are of use: an interval from nothing to everything would cover too.
    low, high = fitted_law(seeds_of(TRUE)).intervals[0]
    assert 0.35 < low < high < 0.65


def test_what_lies_beyond_half_of_the_compute_is_predicted() -> None:
    found = fitted_law(seeds_of(TRUE, noise=0.0, count=4), seen=0.5)
    assert found.reason == "" and found.seeds == 4
    error, seen = found.held_out
    # Seeds differ by 5% of a ceiling of 0.5 in their own ceilings, which no common law can know.
    assert seen == 0.5 and error < 0.05
    late = {seed: curve_of("late", X[2:] + 100, c.y_P[2:]) for seed, c in seeds_of(TRUE).items()}
    assert np.isnan(fitted_law(late, seen=0.4).held_out[0])


def test_a_curve_that_has_not_bent_has_no_ceiling() -> None:
    far = Law(5.0, 5000.0, 1.0)
    found = fitted_law(seeds_of(far, noise=0.001))
    assert "beyond the last point" in found.reason or "only known to lie within" in found.reason
    few = {seed: curve_of("few", X[:3], c.y_P[:3]) for seed, c in seeds_of(TRUE).items()}
    with pytest.raises(UserError, match=r"seed 0 has 3 points: a law needs 4"):
        fitted_law(few)
    with pytest.raises(UserError, match="2 seeds: a law with intervals needs at least 3"):
        fitted_law(seeds_of(TRUE, count=2))
    with pytest.raises(UserError, match="nothing was gained"):
        fit_law([curve_of("none", X, -TRUE.at(X))])
    with pytest.raises(UserError, match="compute above 0"):
        fit_law([curve_of("start", X - 2, TRUE.at(X))])


@pytest.mark.parametrize(
    ("other", "moves"),
    [
        (Law(0.4, 12.0, 1.5), Moves.ceiling),
        (Law(0.5, 24.0, 1.5), Moves.speed),
        (Law(0.4, 24.0, 1.5), Moves.both),
        (TRUE, Moves.nothing),
    ],
)
def test_what_moves(other: Law, moves: Moves) -> None:
    # The same random numbers: seeds are pairs, whose own ceilings cancel.
    found = compare_laws(seeds_of(other, noise=0.002), seeds_of(TRUE, noise=0.002))
    assert found.moves is moves and found.seeds == 6
    ceiling, middle, steepness = found.ratios
    assert ceiling[0] == pytest.approx(other.ceiling / 0.5, rel=0.05)
    assert middle[0] == pytest.approx(other.middle / 12, rel=0.1)
    assert steepness[1] < 1 < steepness[2] or moves is Moves.nothing


def test_only_common_seeds_are_compared() -> None:
    first, second = seeds_of(TRUE), seeds_of(TRUE, seed=3)
    del first[0], second[5]
    assert compare_laws(first, second).seeds == 4
