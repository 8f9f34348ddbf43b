"""The boundary over staleness and rate: known ones are found, at the level that intervals state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.boundary import (
    Threshold,
    Trial,
    boundary,
    reason_against,
    thresholds_of,
)
from rlhf_lab_analysis.statistics.thresholds import (
    Censored,
    fit_thresholds,
    loss_of,
    profile_interval,
    small_sample_factor,
)

pytestmark = pytest.mark.usefixtures("costly")

INF = math.inf
DATA = Censored(np.array([-INF, 0.0, 1.0, 2.0]), np.array([0.5, 1.5, INF, 2.5]))
ONES = np.ones((4, 1))


def runs(outcomes: dict[float, str], staleness: float = 1, seed: int = 1) -> list[Trial]:
    """Runs at some rates; an outcome x is a collapse."""
    return [Trial(seed, staleness, rate, one == "x") for rate, one in outcomes.items()]


def test_the_likelihood_is_that_of_intervals_of_the_logistic() -> None:
    scale, centre = 0.7, 0.9
    loss, _ = loss_of(np.array([centre / scale, 1 / scale]), DATA.low_N, DATA.high_N, ONES)
    noise = stats.logistic(centre, scale)
    expected = np.log(noise.cdf(DATA.high_N) - noise.cdf(DATA.low_N)).sum()
    assert -loss == pytest.approx(expected)


def test_the_gradient_is_that_of_differences() -> None:
    design = np.array([[1, 0.3], [1, 1.0], [1, 2.0], [1, 4.0]])
    given = np.array([0.4, 0.2, 1.3])
    own = loss_of(given, DATA.low_N, DATA.high_N, design)[1]

    def loss(x: np.ndarray) -> float:
        return loss_of(x, DATA.low_N, DATA.high_N, design)[0]

    assert own == pytest.approx(optimize.approx_fprime(given, loss, 1e-7), abs=1e-4)


def test_the_loss_is_convex_so_that_it_has_one_minimum() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        ends = rng.normal(0, 3, (2, 2))
        ends[:, 1] = np.abs(ends[:, 1]) + 0.1
        losses = [loss_of(at, DATA.low_N, DATA.high_N, ONES)[0] for at in (*ends, ends.mean(0))]
        assert losses[2] <= (losses[0] + losses[1]) / 2 + 1e-9


def test_thresholds_below_and_above_one_number_lie_at_it() -> None:
    data = Censored(np.array([-INF, 3.0, 2.5]), np.array([3.0, INF, 3.5]))
    fit = fit_thresholds(data, np.ones((3, 1)))
    assert fit.coefficients[0] == pytest.approx(3.0, abs=1e-4)


def test_a_profile_interval_is_where_the_likelihood_falls_by_its_quantile() -> None:
    point, low, high = profile_interval(DATA, ONES, 0, 0.95)
    whole = fit_thresholds(DATA, ONES)
    for end in (low, high):
        fixed = fit_thresholds(DATA, np.empty((4, 0)), np.full(4, end))
        lost = 2 * (whole.log_likelihood - fixed.log_likelihood)
        # (4 - 1 - 1 + 1/2) / 4 = 5/8.
        assert lost * 5 / 8 == pytest.approx(stats.chi2.ppf(0.95, 1), rel=1e-2)
    assert low < point < high
    assert small_sample_factor(4, 1) == 5 / 8 and small_sample_factor(2, 2) == 0


def test_the_threshold_of_a_seed_lies_between_two_rates() -> None:
    found, warnings = thresholds_of(
        [
            *runs({1: "o", 2: "o", 4: "x", 8: "x"}),
            *runs({1: "o", 2: "o"}, seed=2),
            *runs({1: "x", 2: "x"}, seed=3),
            *runs({1: "o", 2: "x", 4: "o", 8: "x"}, staleness=2),
        ]
    )
    assert found == [
        Threshold(1, 1, 2, 4),
        Threshold(2, 1, 2, INF),
        Threshold(3, 1, 0, 1),
        Threshold(1, 2, 1, 2),
    ]
    assert len(warnings) == 1 and warnings[0].endswith("S=2 seed 1")


def test_a_boundary_without_noise_is_found_between_the_rates() -> None:
    rates = [2.0**power for power in range(-12, 1)]
    made = [
        Trial(seed, s, rate, rate > 0.7 / (s + 1))
        for seed in (1, 2, 3)
        for s in (0, 1, 3, 7)
        for rate in rates
    ]
    found = boundary(made)
    assert found.slope.low < -1 < found.slope.high
    for s in (0, 1, 3, 7):
        at = found.rates[s]
        # Between the rates .5 and 1 over S + 1, of which none other is on the grid.
        assert 0.5 / (s + 1) < at.point < 1 / (s + 1) and at.low < 0.7 / (s + 1) < at.high


def simulated(slope: float, seeds: int, rng: np.random.Generator) -> list[Trial]:
    """A grid of runs, of each seed and S at every rate: its largest stable rate lies around the
    true one by logistic noise, and falls by this slope over log(S + 1)."""
    made = []
    for staleness in (0, 1, 2, 4, 8, 16):
        truth = math.log(3e-4) + slope * math.log((staleness + 1) / 4)
        for seed in range(seeds):
            threshold = truth + float(rng.logistic(0, 0.25))
            rates = np.geomspace(1e-5, 1e-2, 11).tolist()
            made += [Trial(seed, staleness, rate, math.log(rate) > threshold) for rate in rates]
    return made


def test_the_unit_of_rates_moves_rates_alone() -> None:
    made = simulated(-1, 2, np.random.default_rng(0))
    scaled = [Trial(t.seed, t.staleness, 1000 * t.rate, t.has_collapsed) for t in made]
    one, other = boundary(made), boundary(scaled)
    assert one.slope.point == pytest.approx(other.slope.point, abs=1e-3)
    assert 1000 * one.rates[4].point == pytest.approx(other.rates[4].point, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [-1.0, 0.0])
def test_slopes_are_held_at_their_level(slope: float) -> None:
    simulations = 40
    grids = [simulated(slope, 3, np.random.default_rng(n)) for n in range(simulations)]
    made = [boundary(grid) for grid in grids]
    held = [one.slope.low <= slope <= one.slope.high for one in made]
    # The standard error of a share of .95: .034 of 40 simulations.
    error = math.sqrt(0.95 * 0.05 / simulations)
    assert np.mean(held) >= 0.95 - 3 * error
    # The other of both slopes is excluded.
    assert np.mean([one.slope.low <= -1 - slope <= one.slope.high for one in made]) < 0.2


def test_a_grid_without_its_boundary_is_refused_with_the_reason() -> None:
    stable = [one for s in (0, 1, 2) for one in runs({1: "o", 2: "o"}, s)]
    with pytest.raises(UserError, match=r"0 values of S .* 3 have no collapse .* larger"):
        boundary(stable)
    one_known = [*runs({1: "o", 2: "x"}, 1), *runs({1: "x", 2: "x"}, 2)]
    assert "1 values of S" in reason_against(thresholds_of(one_known)[0])
