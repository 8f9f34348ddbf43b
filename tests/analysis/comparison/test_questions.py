"""Verdicts from hand-made runs, with hand-worked numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.comparison.registry.answers import Answer, Criteria, Number, Unit
from rlhf_lab_analysis.comparison.registry.measures import on_average, over_updates
from rlhf_lab_analysis.comparison.registry.questions import Answers, answers_of, registries
from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.sources.record import Record
from rlhf_lab_analysis.statistics.decisions import Verdict
from rlhf_lab_analysis.statistics.results import Basis, Estimate, Options
from tests.support import table_records as made
from tests.support.question_records import Made

# Of Student's t with 2 degrees of freedom at 97.5%.
T2 = 4.302652729911275
HIGH = (0.90, 0.92, 0.94)
NEAR = (0.001, -0.001, 0.0005)
# Words of claims.
COSTS, AVERAGE, CURVE = "per round end at a lower", "on average over the updates", "one curve"
EQUAL, ORDER = "one round ahead ends", "than every other algorithm"


def given(*conditions: list[Record], asked: Criteria | None = None) -> Answers:
    """The answers to the questions of any runs alone."""
    tables = made.tables(*(run for runs in conditions for run in runs))
    return answers_of(cells(tables), asked or Criteria(), [registries()[-1]])


def find(found: Answers, words: str, scale: str = "") -> Answer:
    (only,) = [one for one in found.every if words in one.claim and scale in one.setting]
    return only


def less(ends: Sequence[float], by: Sequence[float]) -> list[float]:
    return [end - one for end, one in zip(ends, by, strict=True)]


def test_a_loss_with_n_is_a_paired_difference_and_its_t_interval() -> None:
    low, high = Made(), Made(per_round=16)
    found = find(given(low.runs(HIGH), high.runs(less(HIGH, (0.10, 0.12, 0.08)))), COSTS)
    (number,) = found.numbers
    half = T2 * 0.02 / math.sqrt(3)
    assert number.estimate.point == pytest.approx(-0.10)
    assert (number.estimate.low, number.estimate.high) == pytest.approx(
        (-0.10 - half, -0.10 + half)
    )
    assert number.text == "-10.0 [-15.0, -5.0] points (95%)"
    assert found.verdict is Verdict.holds
    assert found.setting == "nano_s, tldr_nano, ppo"
    assert found.runs == "6 runs, 3 seeds (1 to 3)"
    assert any("fewer than 5" in text for text in found.warnings)


def test_without_versions_of_as_many_updates_there_is_no_mean_over_all_updates() -> None:
    # Evaluated after 16, 32, 48 and 64 updates; after 15, 30, 45 and 60; and after 12, ..., 48.
    whole, apart, some = (
        cells(made.tables(*Made(updates=updates).runs(HIGH))).cells[0] for updates in (64, 60, 48)
    )
    assert on_average(whole, apart, Criteria()) == {}
    assert set(on_average(whole, some, Criteria())) == {1, 2, 3}
    assert over_updates(apart, whole, Criteria()) == {}


def test_a_run_that_lost_its_rounds_is_left_out_and_the_others_are_compared() -> None:
    low, high = Made(), Made(per_round=16)
    lost = replace(low.runs(HIGH)[0], rounds=())
    found = given([lost, *low.runs(HIGH)[1:], *high.runs(less(HIGH, NEAR))])
    (line,) = [one for one in found.left_out if "nothing differs" not in one]
    assert "left out" in line and "none of its rounds is there" in line
    assert find(found, COSTS).runs == "4 runs, 2 seeds (2, 3)"


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((0.10, 0.12, 0.08), Verdict.holds),
        ((-0.10, -0.12, -0.08), Verdict.does_not_hold),
        # Shown to be smaller than what matters: none, or one of the claimed sign.
        ((0.001, -0.001, 0.0005), Verdict.does_not_hold),
        ((0.010, 0.011, 0.012), Verdict.negligible),
        # No seed differs from another.
        ((0.10, 0.10, 0.10), Verdict.cannot_tell),
        ((0.10, -0.10, 0.05), Verdict.cannot_tell),
    ],
)
def test_verdicts_of_a_loss(losses: Sequence[float], verdict: Verdict) -> None:
    found = given(Made().runs(HIGH), Made(per_round=16).runs(less(HIGH, losses)))
    assert find(found, COSTS).verdict is verdict


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((0.001, -0.001, 0.0005), Verdict.holds),
        ((0.10, 0.12, 0.08), Verdict.does_not_hold),
        ((0.10, -0.10, 0.05), Verdict.cannot_tell),
        ((0.05, 0.05, 0.05), Verdict.cannot_tell),
        # Different from nothing, but not by more than the margin.
        ((0.020, 0.021, 0.022), Verdict.cannot_tell),
    ],
)
def test_async_is_held_against_the_margin(losses: Sequence[float], verdict: Verdict) -> None:
    found = given(Made().runs(HIGH), Made(mode="async").runs(less(HIGH, losses)))
    assert find(found, EQUAL).verdict is verdict


def test_sync_against_async_is_asked_once() -> None:
    found = given(Made().runs(HIGH), Made(mode="async").runs(less(HIGH, NEAR)))
    assert {one.question for one in found.every} == {"What does async cost, and what does it buy?"}


def test_what_changed_nothing_gets_no_verdict() -> None:
    """Runs repeat bit for bit: equal numbers of every seed are those of a treatment that did not
    act."""
    found = given(Made().runs(HIGH), Made(mode="async").runs(HIGH))
    assert not any(EQUAL in one.claim or "less wall-clock" in one.claim for one in found.every)
    idle = [line for line in found.left_out if "nothing differs" in line]
    assert any("async_costs_nothing" in line for line in idle)
    ladder = given(Made().runs(HIGH), Made(per_round=4).runs(HIGH))
    robust = next(one for one in ladder.unanswered if one.question.startswith("How robust"))
    assert robust.reason.startswith("The runs that it compares differ in nothing")


def test_the_margin_is_the_users() -> None:
    runs = Made().runs(HIGH), Made(mode="async").runs(less(HIGH, (0.03, 0.031, 0.029)))
    assert find(given(*runs), EQUAL).verdict is Verdict.does_not_hold
    wide = given(*runs, asked=Criteria(margin=0.05))
    assert find(wide, EQUAL).verdict is Verdict.holds
    assert find(wide, EQUAL).margin == 0.05


def test_two_one_sided_tests_decide_by_the_interval_at_90_percent() -> None:
    # 3 seeds: t of 2 at 95% is 2.92, so a mean of 0.01 with this error ends at 0.0188.
    found = given(Made().runs(HIGH), Made(mode="async").runs(less(HIGH, (0.005, 0.010, 0.015))))
    (number,) = find(found, EQUAL).numbers
    assert number.estimate.low == pytest.approx(-0.01 - 2.919985580353726 * 0.005 / math.sqrt(3))
    assert number.estimate.basis.options.level == pytest.approx(0.90)
    assert find(found, EQUAL).verdict is Verdict.holds


def test_speed_up_and_its_bound_from_overlap() -> None:
    found = given(Made(seconds=10, generate=4).runs(HIGH), Made(mode="async", seconds=8).runs(HIGH))
    faster = find(found, "less wall-clock")
    assert faster.numbers[0].estimate.point == pytest.approx(1.25)
    # All seeds take the same seconds here, of which no interval can be made.
    assert faster.verdict is Verdict.cannot_tell
    # 4 of 10 seconds generate: at best 10 / 6.
    overlap = find(found, "overlap without loss")
    assert overlap.numbers[0].estimate.point == pytest.approx(1.25 / (10 / 6))
    assert overlap.numbers[0].label == "speed-up / ((g + t) / max(g, t))"


def test_at_equal_wall_clock_the_slower_one_is_on_its_way() -> None:
    # From 0.4 to 0.9 in 32 and in 40 seconds: after 32 the slower one is at 0.8.
    ends = (0.9, 0.9, 0.9001)
    sync, ahead = Made(seconds=10).runs(ends), Made(mode="async", seconds=8).runs(ends)
    sooner = find(given(sync, ahead), "equal wall-clock")
    wall, device = sooner.numbers
    assert (wall.label, device.label) == (
        "async less sync",
        "at equal device-hours, async less sync",
    )
    assert wall.estimate.point == pytest.approx(0.1, abs=1e-4)
    assert sooner.verdict is Verdict.holds
    # It takes two devices, so that after 40 device-seconds it is behind: at 0.4 + 0.5 * 40 / 64.
    assert device.estimate.point == pytest.approx(0.4 + 0.5 * 40 / 64 - 0.9, abs=1e-4)


def test_speed_ups_of_two_models_are_compared_by_their_ratio() -> None:
    def pair(model: str, work: float, ahead: float) -> list[Record]:
        sync = Made(model=model, work=work).runs(HIGH)
        return sync + Made(model=model, work=work, mode="async", seconds=ahead).runs(HIGH)

    found = given(pair("nano_s", 1e3, 8.0), pair("nano_l", 1e4, 5.0))
    grows = find(found, "The larger the policy")
    assert grows.numbers[0].estimate.point == pytest.approx(2.0 / 1.25)
    assert grows.verdict is Verdict.cannot_tell
    assert grows.numbers[0].label == "nano_l / nano_s, of sync / async"


def test_lagged_counts_as_no_async() -> None:
    found = given(Made().runs(HIGH), Made(mode="lagged").runs(HIGH))
    assert all("wall-clock" not in one.claim for one in found.every)


def test_conditions_that_differ_in_something_else_are_not_compared() -> None:
    changed = Made(per_round=16).runs(HIGH)
    for run in changed:
        run.config["optim"]["lr"] = 1e-3
    assert given(Made().runs(HIGH), changed).every == []


def test_a_condition_of_two_sweeps_counts_once() -> None:
    ladder = (
        Made(sweep="ladder").runs(HIGH),
        Made(sweep="ladder", per_round=4).runs(less(HIGH, NEAR)),
    )
    again = Made(sweep="scale").runs(HIGH)
    found = find(given(*ladder, again), COSTS)
    assert found.runs == "6 runs, 3 seeds (1 to 3)"


def test_intervals_of_several_algorithms_hold_together() -> None:
    runs = [
        run
        for algo in ("ppo", "online_dpo", "best_of_n")
        for n in (1, 64)
        for run in Made(algo=algo, per_round=n).runs(HIGH if n == 1 else less(HIGH, NEAR))
    ]
    found = find(given(runs), COSTS, "ppo")
    assert found.numbers[0].estimate.basis.options.level == pytest.approx(1 - 0.05 / 3)


def test_the_order_of_algorithms_is_about_their_losses() -> None:
    def ladder(algo: str, lost: Sequence[float]) -> list[Record]:
        low = Made(algo=algo).runs(HIGH)
        return low + Made(algo=algo, per_round=64).runs(less(HIGH, lost))

    kept, lost = (0.01, 0.012, 0.011), (0.30, 0.31, 0.32)
    found = given(ladder("online_dpo", kept), ladder("ppo", lost))
    order = find(found, ORDER)
    assert order.verdict is Verdict.holds
    assert order.numbers[0].estimate.point == pytest.approx(0.31 - 0.011)
    turned = given(ladder("online_dpo", lost), ladder("ppo", kept))
    assert find(turned, ORDER).verdict is Verdict.does_not_hold


def test_one_curve_is_judged_at_equal_kl() -> None:
    # Twice the KL for the same gain of 0.5: from 0.5 to 1 nats it is half as far, 0.1875 less.
    ends = (0.9, 0.9, 0.9001)
    fast, slow = Made(kl=1.0).runs(ends), Made(per_round=4, kl=2.0).runs(ends)
    found = find(given(fast, slow), CURVE)
    assert found.numbers[0].estimate.point == pytest.approx(-0.1875, abs=1e-4)
    assert found.verdict is Verdict.does_not_hold
    near = less(ends, NEAR)
    same = given(Made(kl=1.0).runs(ends), Made(per_round=4, kl=1.0).runs(near))
    assert find(same, CURVE).verdict is Verdict.holds


def test_every_seed_has_its_own_range_of_kl() -> None:
    # Seed 2 goes ten times as far in both conditions, which no range is common to all with.
    ends = {1: (0.9, 0.9), 4: (0.9001, 0.9002)}
    runs = [
        [Made(per_round=n, kl=1.0).run(1, near), Made(per_round=n, kl=10.0).run(2, far)]
        for n, (near, far) in ends.items()
    ]
    found = find(given(*runs), CURVE)
    assert found.runs == "4 runs, 2 seeds (1, 2)"
    assert found.verdict is Verdict.holds


def test_the_largest_n_with_kl_in_common_is_taken() -> None:
    ends = (0.9, 0.9, 0.9001)
    runs = [Made(kl=4.0).runs(ends), Made(per_round=4, kl=4.0).runs(less(ends, NEAR))]
    far = Made(per_round=16, kl=0.5).runs(ends)
    assert "N=4 less N=1" in find(given(*runs, far), CURVE).evidence
    assert not any(CURVE in one.claim for one in given(runs[0], far).every)


def test_a_seed_without_kl_in_common_is_not_left_out() -> None:
    """To leave it out would be to choose seeds by what happened in them."""
    low = [Made(kl=4.0).run(seed, 0.9) for seed in (1, 2, 3)]
    high = [Made(per_round=4, kl=kl).run(seed, 0.8) for seed, kl in ((1, 4.0), (2, 4.0), (3, 0.5))]
    assert not any(CURVE in one.claim for one in given(low, high).every)
    assert find(given(low[:2], high[:2]), CURVE).verdict is not Verdict.holds


def test_levels_that_fell_back_are_still_one_claim() -> None:
    """One algorithm has KL in common at N=16, the other at N=4 alone: both answer what the most
    updates a round do, and are corrected for two."""
    ends = (0.9, 0.9, 0.9001)
    runs = [
        run
        for algo, far in (("ppo", 0.5), ("online_dpo", 4.0))
        for n, kl in ((1, 4.0), (4, 4.0), (16, far))
        for run in Made(algo=algo, per_round=n, kl=kl).runs(ends if n == 1 else less(ends, NEAR))
    ]
    found = {algo: find(given(runs), CURVE, algo) for algo in ("ppo", "online_dpo")}
    assert "N=4 less" in found["ppo"].evidence and "N=16 less" in found["online_dpo"].evidence
    levels = [one.numbers[0].estimate.basis.options.level for one in found.values()]
    assert levels == pytest.approx([1 - 2 * 0.05 / 2] * 2)


def test_more_snapshots_make_no_other_condition_and_are_preferred() -> None:
    few = Made(snapshots=2).runs(HIGH)
    many = Made(sweep="more").runs(HIGH)
    other = Made(per_round=16, snapshots=2).runs(less(HIGH, (0.10, 0.12, 0.08)))
    found = given(few, many, other)
    assert find(found, COSTS).runs == "6 runs, 3 seeds (1 to 3)"
    # On the versions that both have: a straight line has the same mean on them.
    assert find(found, AVERAGE).numbers[0].estimate.point == pytest.approx(-0.05)


def test_learning_on_average_is_the_area_over_updates() -> None:
    # A straight line from 0.4 to e: its mean is (0.4 + e) / 2.
    found = given(Made().runs(HIGH), Made(per_round=16).runs(less(HIGH, (0.10, 0.12, 0.08))))
    slower = find(found, AVERAGE)
    assert slower.numbers[0].estimate.point == pytest.approx(-0.05)


def test_a_ladder_with_the_published_schedule_says_so() -> None:
    ends = {4: HIGH, 64: less(HIGH, NEAR)}
    found = given(*(Made(per_round=n, schedule="round").runs(end) for n, end in ends.items()))
    assert find(found, COSTS).setting.endswith("learning rate per round, ppo")


def test_schedules_are_compared_at_each_n_of_both() -> None:
    update = [Made(per_round=n).runs(HIGH) for n in (1, 64)]
    each_round = Made(per_round=64, schedule="round").runs(less(HIGH, (0.10, 0.12, 0.08)))
    found = find(given(*update, each_round), "falls with each update")
    assert found.numbers[0].estimate.point == pytest.approx(0.10)
    assert "N=64" in found.evidence
    assert found.verdict is Verdict.holds


@pytest.mark.parametrize(
    ("size", "words"), [("model", "larger policy"), ("proxy", "larger reward model")]
)
def test_sizes_are_ordered_by_their_work(size: str, words: str) -> None:
    def ladder(name: str, work: float, lost: Sequence[float]) -> list[Record]:
        sized = {size: name, "work": work}
        low = Made(**sized).runs(HIGH)  # type: ignore[arg-type]
        return low + Made(per_round=16, **sized).runs(less(HIGH, lost))  # type: ignore[arg-type]

    # nano_l sorts before nano_s, but is the larger one.
    small, large = ("nano_s", 1e3, (0.3, 0.32, 0.31)), ("nano_l", 1e4, (0.1, 0.11, 0.12))
    found = find(given(ladder(*small), ladder(*large)), words)
    assert found.numbers[0].label == "nano_l less nano_s, of N=16 less N=1"
    assert found.numbers[0].estimate.point == pytest.approx(0.2)
    assert found.verdict is (Verdict.holds if size == "model" else Verdict.does_not_hold)


def test_passes_save_samples_and_cost_kl() -> None:
    ends = (0.9, 0.9, 0.9001)
    near = less(ends, NEAR)
    found = given(Made().runs(ends), Made(passes=2, kl=3.0).runs(near))
    same = find(found, "2 passes over a round")
    assert same.verdict is Verdict.holds
    assert [one.estimate.point for one in same.numbers[1:3]] == pytest.approx([2.0, 1.0])
    drift = find(found, "2 passes end")
    assert drift.numbers[0].unit is Unit.nats
    assert drift.numbers[0].estimate.point == pytest.approx(1.0)
    assert drift.verdict is Verdict.cannot_tell and "no seed differs" in drift.evidence


def test_more_samples_in_fewer_updates() -> None:
    ends = (0.9, 0.9, 0.9001)
    fewer = Made(group_size=4, updates=32, work=500.0)
    found = given(Made().runs(ends), fewer.runs(less(ends, (0.2, 0.21, 0.22))))
    assert find(found, "best and worst of 4").verdict is Verdict.does_not_hold
    assert find(found, "best and worst of 4").numbers[2].estimate.point == pytest.approx(2.0)
    more = given(Made().runs(ends), Made(group_size=4).runs(ends))
    assert not any("best and worst" in one.claim for one in more.every)


def test_staleness_and_what_weights_repair() -> None:
    def stale(rounds: int, correction: str, lost: Sequence[float]) -> list[Record]:
        one = Made(mode="lagged", staleness=rounds, correction=correction)
        return one.runs(less(HIGH, lost))

    nothing, much = (0.0, 0.0005, -0.0005), (0.20, 0.21, 0.22)
    found = given(
        stale(0, "none", (0.0, 0.0, 0.0)),
        stale(1, "none", nothing),
        stale(4, "none", much),
        stale(4, "truncated_is", nothing),
    )
    assert find(found, "one round old end").verdict is Verdict.holds
    assert find(found, "4 rounds old end").verdict is Verdict.holds
    repaired = find(found, "The correction")
    assert repaired.verdict is Verdict.holds
    assert repaired.numbers[0].label == "truncated_is less none, S=4"
    assert not any("nothing differs" in line for line in found.left_out)
    # Weights that are all 1 leave every number as it is.
    idle = given(
        stale(0, "none", (0.0, 0.0, 0.0)),
        stale(1, "none", nothing),
        stale(1, "icepop", nothing),
    )
    assert not any("The correction" in one.claim for one in idle.every)
    (line,) = (line for line in idle.left_out if "nothing differs" in line)
    assert "corrections_help, " in line and "icepop less none, S=1: nothing" in line


def test_questions_without_runs_say_which_they_need() -> None:
    found = given(Made().runs(HIGH))
    assert found.every == []
    assert len(found.unanswered) == 8
    assert any("SWEEP=staleness_nano" in one.needs for one in found.unanswered)


def test_one_seed_and_missing_metrics_are_told() -> None:
    lonely = Made(per_round=4).runs((0.9,))
    bare = Made(per_round=16).runs(HIGH)
    for run in bare:
        for row in run.evals:
            del row["kl/sft_k1"]  # type: ignore[attr-defined]
    told = given(Made().runs(HIGH), lonely, bare).left_out
    assert any("N=4" in line and "seed 1 alone" in line for line in told)
    assert any("N=16" in line and "kl/sft_k1" in line for line in told)


def test_runs_that_do_not_count() -> None:
    good = Made().runs(HIGH)
    like = {"config": good[0].config, "swept": good[0].facts.swept}
    odd = [
        made.record("cut", 7, state="died", **like),
        made.record("seedless", None, **{**like, "config": {**good[0].config, "seed": None}}),
        made.record("unjudged", 8, evals=[], **like),
        made.record("twice", 1, **like),
    ]
    selection = cells(made.tables(*good, *odd))
    (cell,) = selection.cells
    assert cell.seeds == (1, 2, 3)
    reasons = ("its state is died", "it has no seed", "no version", "seed 1 is there already")
    for evidence in reasons:
        assert any(evidence in line for line in selection.left_out), evidence


def test_nan_is_refused_with_its_place() -> None:
    runs = Made().runs(HIGH)
    runs[1].evals[2]["gold/win_rate"] = math.nan  # type: ignore[index]
    (cell,) = cells(made.tables(*runs)).cells
    with pytest.raises(UserError, match=r"gold/win_rate of .* is NaN at versions \[2\]"):
        cell.paths("x/updates", "gold/win_rate")


def test_a_wrong_name_says_what_there_is() -> None:
    selection = cells(made.tables(*Made().runs(HIGH)))
    with pytest.raises(UserError, match="no such numbers"):
        selection.cells[0].scores("gold/winrate")
    with pytest.raises(UserError, match="conditions have task, model"):
        selection.only(modle="nano_s")


def test_units_are_told() -> None:
    estimate = Estimate("x", 1.234, 1.1, 1.4, Basis((5,), 1, Options()))
    assert Number("x", estimate, Unit.times).text == "1.23 [1.10, 1.40] times (95%)"
    assert Number("x", estimate, Unit.nats).text == "+1.2 [+1.1, +1.4] nats (95%)"
