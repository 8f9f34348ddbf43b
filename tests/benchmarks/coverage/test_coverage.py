"""Coverage of intervals by simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.coverage import __main__ as program
from benchmarks.coverage import intervals
from benchmarks.coverage.intervals import Shares, cases, held, middle_mean
from rlhf_lab_analysis.statistics.results import OF_ANY_NUMBER, Method, Options

pytestmark = pytest.mark.usefixtures("costly")

QUICK = Options(repetitions=1000)
SIMULATIONS = 1000
ERROR = 5 * np.sqrt(0.25 / SIMULATIONS)


@pytest.fixture(scope="module")
def rows() -> Shares:
    """Of means alone, whose coverage is known, in as many simulations as that takes."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(intervals, "cases", lambda scores, seeds: cases(scores, seeds)[:2])
        changed.delitem(intervals.DISTRIBUTIONS, "win-rates (beta)")
        return intervals.coverage(SIMULATIONS, QUICK, seeds=(2, 3))


def test_percentile_coverage_of_two_and_three_seeds_is_that_worked_out(rows: Shares) -> None:
    # All draws equal the smallest seed in 1/4 and 1/27 of draws, more than 2.5%: the interval is
    # from the smallest to the largest seed, and misses if all lie on one side of the truth.
    for case in ("mean, 1 task", "paired difference"):
        for seeds, expected in ((2, 0.5), (3, 0.75)):
            found = rows[case, "normal", seeds][Method.percentile]
            assert found == pytest.approx(expected, abs=ERROR)


def test_the_t_interval_holds_its_level_for_normal_scores(rows: Shares) -> None:
    error = 5 * np.sqrt(0.05 * 0.95 / SIMULATIONS)
    for seeds in (2, 3):
        found = rows["mean, 1 task", "normal", seeds][Method.t]
        assert found == pytest.approx(0.95, abs=error)
    skewed = rows["mean, 1 task", "skewed (log-normal)", 3][Method.t]
    assert skewed < 0.95 - error


def test_tables_have_every_case_distribution_and_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "SEEDS", (2, 3))
    made = intervals.tables(intervals.TOGETHER, 0)
    assert len(made) == 3
    for each in made:
        # Log odds are of shares alone, which differences and shifted tasks are not.
        more = each.title.startswith("mean")
        assert len(each.rows) == len(intervals.DISTRIBUTIONS) * len(OF_ANY_NUMBER) + more
        assert list(each.columns) == ["scores", "interval", "2 seeds", "3 seeds"]
    assert "±" in made[0].rows[0][2]


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
    monkeypatch.setattr(intervals, "SEEDS", (3,))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: begin -->\nstale\n<!-- table: end -->\nafter\n")
    assert program.main(["--simulations", "50", "--docs", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale" not in text
    assert "in 50 simulations; after" in text
    assert "mean, 1 task: actual coverage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--simulations", "70"], "--simulations 70: pass 50 or more, a multiple of 50"),
        (["--simulations", "0"], "--simulations 0"),
        (["--docs", "absent.md"], "is no page with a line"),
    ],
)
def test_options_that_cannot_be_end_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(arguments) == 2
    assert message in capsys.readouterr().err


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
