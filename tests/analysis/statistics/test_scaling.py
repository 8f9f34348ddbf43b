"""The law of scaling: known parameters are found, what is not identified is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.coverage import __main__ as program
from benchmarks.coverage import percent
from benchmarks.coverage import scaling as simulated
from benchmarks.coverage.scaling import NONE, TRUE, coverage, coverage_row, moves
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.curves import RunCurve
from rlhf_lab_analysis.statistics.results import Method, Options
from rlhf_lab_analysis.statistics.scaling import STUDENT, fit_law
from rlhf_lab_analysis.statistics.scaling_effects import Moves, compare_laws, predict
from rlhf_lab_analysis.statistics.scaling_runs import SHARES, Law, ScalingRuns

pytestmark = pytest.mark.usefixtures("costly")

X = np.linspace(0, 100, 9)
# By seed how far its ceiling lies from the mean.
OFF = {1: -0.02, 2: -0.01, 3: 0.0, 4: 0.01, 5: 0.02}


def runs(law: Law, x_P: np.ndarray = X, off: dict[int, float] = OFF) -> ScalingRuns:
    """Exact curves of the law, whose ceiling differs between seeds."""
    own = {seed: dataclasses.replace(law, ceiling=law.ceiling + by) for seed, by in off.items()}
    return ScalingRuns({seed: RunCurve(x_P, one.at(x_P)) for seed, one in own.items()}, SHARES)


def test_the_law_by_hand() -> None:
    law = Law(0.2, 0.8, 2.0, 10.0)
    # (10/20)^2 = 1/4, so that 4/5 of .6 is done; at the midpoint half of it, at the start nothing.
    assert law.at(np.array([0.0, 10.0, 20.0])) == pytest.approx([0.2, 0.5, 0.2 + 0.6 * 0.8])


def test_exact_curves_give_back_their_parameters() -> None:
    fit = fit_law(runs(TRUE))
    found = (fit.law.start, fit.law.ceiling, fit.law.exponent, fit.law.midpoint)
    assert found == pytest.approx((0.4, 0.8, 1.5, 20.0), rel=1e-5)
    assert not fit.refused
    # The curves of seeds differ in A alone, and linearly: the interval is that of a mean of seeds,
    # t with 4 degrees of freedom times .0158 / sqrt(5).
    half = 2.7764 * np.std([*OFF.values()], ddof=1) / np.sqrt(5)
    assert fit.ceiling.half_width == pytest.approx(half, rel=1e-2)


@pytest.mark.parametrize("scale", [1e-3, 1e12])
def test_the_unit_of_compute_moves_the_midpoint_alone(scale: float) -> None:
    fit = fit_law(runs(dataclasses.replace(TRUE, midpoint=20 * scale), X * scale))
    assert fit.law.midpoint == pytest.approx(20 * scale, rel=1e-5)
    assert (fit.law.ceiling, fit.law.exponent) == pytest.approx((0.8, 1.5), rel=1e-5)


def test_values_that_are_no_shares_may_fall() -> None:
    law = Law(3.0, -5.0, 1.2, 30.0)
    curves = {seed: RunCurve(X, law.at(X) + by) for seed, by in OFF.items()}
    fit = fit_law(ScalingRuns(curves))
    assert (fit.law.ceiling, fit.law.midpoint) == pytest.approx((-5.0, 30.0), rel=1e-4)
    assert not fit.refused


def test_a_straight_line_has_no_ceiling() -> None:
    rng = np.random.default_rng(0)
    curves = {s: RunCurve(X, 0.3 + X / 400 + rng.normal(0, 0.01, len(X))) for s in OFF}
    refused = fit_law(ScalingRuns(curves, SHARES)).refused
    assert any("bound" in reason or "bend" in reason for reason in refused)


def test_noise_without_a_rise_has_no_ceiling() -> None:
    rng = np.random.default_rng(1)
    curves = {s: RunCurve(X, 0.5 + rng.normal(0, 0.01, len(X))) for s in OFF}
    assert fit_law(ScalingRuns(curves, SHARES)).refused


@pytest.mark.parametrize("end", [10.0, 20.0])
def test_compute_that_ends_before_the_midpoint_is_nearly_always_refused(end: float) -> None:
    found = coverage(5, end / TRUE.midpoint, STUDENT, 50)
    assert found.refused >= 0.86


# 50 and 200 simulations know a share of .95 to .0308 and .0154.
SIMULATIONS = [50, pytest.param(200, marks=pytest.mark.slow)]


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_the_t_interval_holds_its_level_and_percentiles_of_three_seeds_do_not(
    simulations: int,
) -> None:
    found = coverage(5, 5.0, STUDENT, simulations)
    error = np.sqrt(0.95 * 0.05 / simulations)
    assert found.refused == 0
    assert found.held == pytest.approx([0.95] * 3, abs=3 * error)
    drawn = coverage(3, 5.0, Options(method=Method.percentile, repetitions=1000), simulations)
    assert max(drawn.held) < 0.85


def test_a_change_of_ceiling_or_speed_is_told() -> None:
    higher = dataclasses.replace(TRUE, ceiling=0.86)
    slower = dataclasses.replace(TRUE, midpoint=35.0)
    base = runs(TRUE)
    jitter = np.random.default_rng(2)

    def noisy(given: ScalingRuns) -> ScalingRuns:
        made = {
            s: RunCurve(c.x_P, c.y_P + jitter.normal(0, 0.003, 9)) for s, c in given.curves.items()
        }
        return ScalingRuns(made, SHARES)

    ceiling = compare_laws(noisy(runs(higher)), noisy(base))
    assert ceiling.moves is Moves.ceiling
    assert ceiling.ceiling.low < 0.06 < ceiling.ceiling.high
    speed = compare_laws(noisy(runs(slower)), noisy(base))
    assert speed.moves is Moves.speed
    assert speed.midpoint.low < 1.75 < speed.midpoint.high
    assert speed.midpoint.basis.options.level == pytest.approx(1 - 0.05 / 3)


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_conditions_that_do_not_differ_get_a_verdict_no_more_often_than_the_level(
    simulations: int,
) -> None:
    made = moves(5, (0.0, 1.0), simulations, 0)
    least = 0.95 - 3 * np.sqrt(0.95 * 0.05 / simulations)
    assert made[Moves.neither] + made[Moves.not_identified] >= simulations * least


def test_pairs_take_away_what_seeds_share() -> None:
    wide = {seed: 3 * by for seed, by in OFF.items()}
    ours = runs(dataclasses.replace(TRUE, ceiling=0.84), off=wide)
    paired = compare_laws(ours, runs(TRUE, off=wide))
    assert paired.ceiling.half_width < 0.02
    renamed = {seed + 5: curve for seed, curve in runs(TRUE, off=wide).curves.items()}
    apart = compare_laws(ours, ScalingRuns(renamed, SHARES))
    assert apart.ceiling.half_width > 0.05
    assert "taken as independent" in " ".join(apart.ceiling.warnings)


def test_seeds_of_one_condition_are_left_out_and_named() -> None:
    fewer = {seed: by for seed, by in OFF.items() if seed != 5}
    change = compare_laws(runs(TRUE), runs(TRUE, off=fewer))
    assert change.ceiling.basis.seeds == (4,)
    assert any("[5]" in text for text in change.ceiling.warnings)


def test_no_verdict_where_a_fit_is_refused() -> None:
    short = runs(TRUE, np.linspace(0, 8, 9), {s: 10 * by for s, by in OFF.items()})
    change = compare_laws(short, runs(TRUE))
    assert change.moves is Moves.not_identified
    assert change.refused[0].startswith("first: ")


def test_held_out_compute_is_predicted_and_compared_with_no_change() -> None:
    exact = predict(runs(TRUE), 0.5)
    assert exact.error < 1e-4 and not exact.law.refused
    # 50 is the last fitted point, from which the law rises to that at 62.5, 75, 87.5 and 100.
    steps = TRUE.at(X[5:]) - TRUE.at(X[4:5])
    assert exact.unchanged == pytest.approx(float(np.sqrt((steps**2).mean())), rel=1e-3)
    # Curves that fall after the fitted part are not what the law predicts.
    fallen = {
        s: RunCurve(c.x_P, np.where(c.x_P > 50, c.y_P - 0.1, c.y_P))
        for s, c in runs(TRUE).curves.items()
    }
    off = predict(ScalingRuns(fallen, SHARES), 0.5)
    assert off.error == pytest.approx(0.1, abs=1e-3)


def test_what_cannot_be_fitted_is_refused_with_a_remedy() -> None:
    with pytest.raises(UserError, match=r"2 points after its start.*eval.snapshots"):
        runs(TRUE, X[:3])
    with pytest.raises(UserError, match="begins at -1"):
        ScalingRuns({1: RunCurve(X - 1, TRUE.at(X))})
    with pytest.raises(UserError, match="share=1"):
        predict(runs(TRUE), 1.0)
    with pytest.raises(UserError, match="2 points after its start"):
        predict(runs(TRUE), 0.3)
    with pytest.raises(UserError, match="1 seed"):
        fit_law(runs(TRUE, off={1: 0.0}))


def test_the_simulated_verdicts_count_every_simulation() -> None:
    made = moves(3, (0.0, 2.0), 20, 0)
    assert made.total() == 20 and made[Moves.ceiling] == 0


def test_the_command_prints_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulated, "SEEDS", (3,))
    monkeypatch.setattr(simulated, "ENDS", (0.5, 5.0))
    monkeypatch.setattr(simulated, "CHANGES", ((0.0, 1.0),))
    assert program.main(["scaling", "--simulations", "20"]) == 0
    said = capsys.readouterr().out
    assert "holds C_mid" in said and "moves the ceiling" in said
    assert program.main(["scaling", "--simulations", "2"]) == 2
    assert "--simulations 2" in capsys.readouterr().err


def test_shares_of_few_simulations_are_left_out() -> None:
    # sqrt(.8 * .2 / 400) = .02.
    assert percent(0.8, 400) == "80.0 ± 2.0"
    # Nearly all fits are refused where compute ends at half of C_mid.
    row = coverage_row(3, 0.5, STUDENT, 20)
    assert row[:3] == ["t", "3", "0.5"] and row[4:] == [NONE] * 3
