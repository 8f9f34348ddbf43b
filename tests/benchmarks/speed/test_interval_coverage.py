"""Coverage of intervals by simulation, and the benchmark against rliable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.speed import bootstrap, interval_coverage, simulated_scores
from benchmarks.speed.bootstrap import Timed, measure_both, table
from benchmarks.speed.interval_coverage import Row, held, tables
from benchmarks.speed.rliable_bootstrap import Work, aggregate_work, improvement_work
from benchmarks.speed.simulated_scores import cases, middle_mean
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.statistics.results import OF_ANY_NUMBER, Method, Options

pytestmark = pytest.mark.usefixtures("costly")

QUICK = Options(repetitions=1000)
SIMULATIONS = 1000
ERROR = 5 * np.sqrt(0.25 / SIMULATIONS)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Of means alone, whose coverage is known, in as many simulations as that takes."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(interval_coverage, "cases", lambda scores, seeds: cases(scores, seeds)[:2])
        changed.delitem(simulated_scores.DISTRIBUTIONS, "win-rates (beta)")
        return interval_coverage.coverage(SIMULATIONS, QUICK, seeds=(2, 3))


def share(rows: list[Row], case: str, distribution: str, seeds: int, method: Method) -> float:
    (found,) = [
        row.held[method]
        for row in rows
        if (row.case, row.distribution, row.seeds) == (case, distribution, seeds)
    ]
    return found


def test_percentile_coverage_of_two_and_three_seeds_is_that_worked_out(rows: list[Row]) -> None:
    # All draws equal the smallest seed in 1/4 and 1/27 of draws, more than 2.5%: the interval is
    # from the smallest to the largest seed, and misses if all lie on one side of the truth.
    for case in ("mean, 1 task", "paired difference"):
        assert share(rows, case, "normal", 2, Method.percentile) == pytest.approx(0.5, abs=ERROR)
        assert share(rows, case, "normal", 3, Method.percentile) == pytest.approx(0.75, abs=ERROR)


def test_the_t_interval_holds_its_level_for_normal_scores(rows: list[Row]) -> None:
    error = 5 * np.sqrt(0.05 * 0.95 / SIMULATIONS)
    for seeds in (2, 3):
        found = share(rows, "mean, 1 task", "normal", seeds, Method.t)
        assert found == pytest.approx(0.95, abs=error)
    skewed = share(rows, "mean, 1 task", "skewed (log-normal)", 3, Method.t)
    assert skewed < 0.95 - error


def test_tables_have_every_case_distribution_and_method() -> None:
    made = tables(interval_coverage.coverage(simulated_scores.TOGETHER, QUICK, seeds=(2, 3)))
    assert len(made) == 3
    for each in made:
        # Log odds are of shares alone, which differences and shifted tasks are not.
        more = each.title.startswith("mean")
        assert len(each.rows) == len(simulated_scores.DISTRIBUTIONS) * len(OF_ANY_NUMBER) + more
        assert list(each.columns) == ["scores", "interval", "2 seeds", "3 seeds"]
    assert "±" in made[0].rows[0][2]


def test_the_error_of_a_share_by_hand() -> None:
    row = Row("mean", "normal", 3, 400, {Method.t: 0.8})
    assert row.error(Method.t) == pytest.approx(0.02)


def test_the_same_seed_gives_the_same_coverage() -> None:
    case = cases(stats.norm(), 3)[2]
    first, again = (held(case, QUICK, "x") for _ in range(2))
    assert all((first[method] == again[method]).all() for method in OF_ANY_NUMBER)


def test_the_true_iqm_of_shifted_uniforms_is_known() -> None:
    assert middle_mean(stats.uniform(), np.zeros(1)) == pytest.approx(0.5)
    # Together they are uniform from 0 to 2.
    assert middle_mean(stats.uniform(), np.array([0.0, 1.0])) == pytest.approx(1.0)
    # The square of a uniform u, whose middle half is u from 1/4 to 3/4.
    square = stats.beta(0.5, 1)
    expected = (0.75**3 - 0.25**3) / 3 / 0.5
    assert middle_mean(square, np.zeros(1)) == pytest.approx(expected, abs=1e-6)


def test_the_command_writes_the_tables_between_the_markers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interval_coverage, "SEEDS", (3,))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: begin -->\nstale\n<!-- table: end -->\nafter\n")
    arguments = ["--simulations", "50", "--repetitions", "1000", "--docs", str(page)]
    assert interval_coverage.main(arguments) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert "in 50 simulations with 1000 draws each" in text
    assert "mean, 1 task: actual coverage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--simulations", "70"], "simulations=70: pass a multiple of 50"),
        (["--level", "95"], "level=95"),
        (["--docs", "absent.md"], "is no page with a line"),
    ],
)
def test_options_that_cannot_be_end_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interval_coverage.main(arguments) == 2
    assert message in capsys.readouterr().err


WORKS = {"aggregates": aggregate_work(3, 2, four=True), "improvement": improvement_work(3, 2)}


@pytest.mark.parametrize("work", WORKS.values(), ids=list(WORKS))
def test_the_benchmark_compares_the_same_numbers(work: Work) -> None:
    found = measure_both(work, 1000, 100)
    assert found.points_apart < 1e-12
    assert found.ends_apart < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS.values(), ids=list(WORKS))
def test_ours_is_faster_than_rliable(work: Work) -> None:
    assert measure_both(work, 1000, 100).ratio > 20


def test_ratios_are_of_seconds_per_repetition() -> None:
    found = Timed("IQM", 0.1, 10_000, 2.0, 500, 0.0, 0.001)
    # 4 ms against 10 microseconds.
    assert found.ratio == pytest.approx(400)
    assert table([found]).rows[0] == ["IQM", "0.100", "2.00", "500", "400", "0e+00", "0.0010"]


def test_the_benchmark_refuses_what_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert bootstrap.main(["--repetitions", "10"]) == 2
    assert bootstrap.main(["--slow-repetitions", "0"]) == 2
    assert "repetitions=10" in capsys.readouterr().err
    with pytest.raises(UserError, match="simulations=0"):
        interval_coverage.coverage(0, QUICK, (3,))


def test_log_odds_hold_the_mean_of_win_rates_better_than_t() -> None:
    # Win-rates of mean .8 and standard deviation .21, as wide as those of one weak proxy in five.
    case, *_ = cases(stats.beta(2, 0.5), 5)
    found = [held(case, QUICK, f"log odds {part}") for part in range(30)]
    shares = {
        method: float(np.concatenate([part[method] for part in found]).mean())
        for method in (Method.t, Method.logit)
    }
    # 1500 simulations know a share of .93 to .0066; by 4000 of them it is .93 against .87.
    assert shares[Method.logit] == pytest.approx(0.935, abs=4 * 0.0066)
    assert shares[Method.logit] > shares[Method.t] + 0.03
