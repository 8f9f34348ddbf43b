"""The grammar of a search space, the arithmetic of halving, and Student's interval."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from rlhf_lab.sweeps.search.final_test import mean_interval
from rlhf_lab.sweeps.search.options import Direction, SearchOptions, Source
from rlhf_lab.sweeps.search.space import Dimension, grid, parse_space, to_overrides
from rlhf_lab.sweeps.search.tuning import Halving, rank_trials
from rlhf_lab.types.errors import UserError

PARSER = OverridesParser.create()


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        (
            "optim.lr=tag(log,interval(1e-5,1e-3))",
            Dimension("optim.lr", low=1e-5, high=1e-3, is_log=True),
        ),
        ("algo.beta=interval(0,1)", Dimension("algo.beta", low=0.0, high=1.0)),
        ("run.passes=int(interval(1,4))", Dimension("run.passes", low=1, high=4)),
        ("algo.beta=choice(0.05,0.1)", Dimension("algo.beta", ("0.05", "0.1"))),
        ("algo=rloo,grpo", Dimension("algo", ("rloo", "grpo"))),
        ("run.group_size=range(2,9)", Dimension("run.group_size", low=2, high=8, step=1)),
        ("run.group_size=range(2,9,3)", Dimension("run.group_size", low=2, high=8, step=3)),
        ("algo.beta=range(0.1,0.5,0.2)", Dimension("algo.beta", low=0.1, high=0.3, step=0.2)),
        (
            "run.passes=tag(log,range(1,9))",
            Dimension("run.passes", low=1, high=8, step=1, is_log=True),
        ),
    ],
)
def test_a_dimension_is_what_hydra_says(text: str, dimension: Dimension) -> None:
    fixed, space = parse_space([text], PARSER)
    assert fixed == []
    assert space == [dimension]
    assert isinstance(space[0].low, int) == dimension.is_integer


def test_a_later_override_fixes_a_dimension_or_opens_one() -> None:
    texts = ["a=choice(1,2)", "b=3", "c=choice(1,2)", "a=7", "b=choice(3,4)"]
    fixed, space = parse_space(texts, PARSER)
    assert fixed == ["a=7"]
    assert sorted(part.key for part in space) == ["b", "c"]


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["optim.lr=1e-3"], "nothing to search"),
        (["seed=1,2", "a=choice(1,2)"], r"seed in a search: .* hydra\.sweeper\.tuning_seeds"),
        (["seed=1", "a=choice(1,2)"], "seed in a search"),
        (["output.dir=x", "a=choice(1,2)"], "output.dir in a search: .* leave it out"),
        (["eval.prompts=choice(8,16)"], "eval.prompts cannot be searched"),
        (["eval=quick,full"], "eval cannot be searched"),
        (["a=choice(1)"], r"a has one value to choose from \(1\)"),
        (["a=interval(2,2)"], "a has one value"),
        (["a=interval(2,1)"], "a has one value"),
        (["a=range(3,3)"], "an empty range"),
        (["a=tag(log,interval(0,1))"], "a log scale starts above 0"),
        (["a=tag(log,range(1,9,2))"], "a log scale .* step 1"),
        (["a=tag(log,choice(1,2))"], "choices have no scale"),
        (["a=tag(lag,interval(1,2))"], r"tag\(lag, ...\) is unknown; the tag is log"),
    ],
)
def test_a_space_that_is_none_is_refused(texts: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_space(texts, PARSER)


def test_numbers_keep_their_bits_as_overrides() -> None:
    rng = random.Random(0)
    for _ in range(50):
        value = rng.uniform(-1, 1) * 10.0 ** rng.randint(-9, 9)
        (override,) = PARSER.parse_overrides(to_overrides({"key": value}))
        assert override.value() == value


def test_a_grid_has_every_setting_once() -> None:
    _, space = parse_space(["a=choice(x,y)", "b=range(1,4)", "c=range(0.5,1.6,0.5)"], PARSER)
    settings = grid(space)
    assert len(settings) == 2 * 3 * 3
    assert len({tuple(setting.items()) for setting in settings}) == 18
    assert settings[1] == {"a": "x", "b": 1, "c": 1.0}
    with pytest.raises(UserError, match=r"sampler=grid with a from 0.5 to 1: .*; pass choice"):
        grid(parse_space(["a=interval(0.5,1)"], PARSER)[1])


@pytest.mark.parametrize(
    ("rungs", "reduction", "rounds", "pauses"),
    [
        (3, 2, 8, (2, 4, 8)),
        (3, 2, 10, (3, 5, 10)),
        (3, 3, 256, (29, 86, 256)),
        (1, 2, 5, (5,)),
        (2, 4, 2, (1, 2)),
    ],
)
def test_a_run_is_looked_at_after_shares_of_its_rounds(
    rungs: int, reduction: int, rounds: int, pauses: tuple[int, ...]
) -> None:
    assert Halving(rungs, reduction).pauses(rounds) == pauses


def test_rungs_that_fall_together_are_refused() -> None:
    with pytest.raises(UserError, match=r"rungs=3: a run of 2 rounds .* fewer rungs"):
        Halving(3, 2).pauses(2)


def test_what_a_bracket_costs_by_hand() -> None:
    # 4 for a quarter, 2 for another, 1 for the other half.
    assert Halving(3, 2).sizes(4) == (4, 2, 1)
    assert Halving(3, 2).cost(4) == 4 / 4 + 2 / 4 + 1 / 2
    # 9 for a ninth, 3 for two ninths more, 1 for the other two thirds.
    assert Halving(3, 3).sizes(9) == (9, 3, 1)
    assert math.isclose(Halving(3, 3).cost(9), 1 + 2 / 3 + 2 / 3)
    assert Halving(1, 2).cost(6) == 6


def test_the_best_are_taken_in_order_and_ties_go_to_the_first() -> None:
    values = {4: 0.5, 2: 0.5, 7: 0.9, 1: 0.1}
    assert rank_trials(values, 3, Direction.maximize) == [7, 2, 4]
    assert rank_trials(values, 2, Direction.minimize) == [1, 2]
    assert rank_trials({}, 2, Direction.maximize) == []


# From printed tables of Student's distribution, 95%.
@pytest.mark.parametrize(
    ("degrees", "t"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)],
)
def test_students_quantiles(degrees: int, t: float) -> None:
    values = [float(number) for number in range(degrees + 1)]
    mean, _, high = mean_interval(values)
    error = statistics.stdev(values) / math.sqrt(degrees + 1)
    assert (high - mean) / error == pytest.approx(t, abs=5e-5)


def test_an_interval_by_hand() -> None:
    # Mean 3, standard deviation sqrt(2.5), t of 4 degrees 2.7764: 2.7764 * sqrt(2.5 / 5).
    mean, low, high = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3
    assert high - mean == pytest.approx(1.9632, abs=1e-4)
    assert mean - low == pytest.approx(high - mean)
    assert mean_interval([2.0]) == (2.0, -math.inf, math.inf)
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"trials": 0}, "hydra.sweeper.trials=0 is out of range: choose 1 "),
        ({"reduction": 1}, "hydra.sweeper.reduction=1 is out of range: choose 2 "),
        ({"rungs": 0}, "hydra.sweeper.rungs=0 is out of range: choose 1 "),
        ({"trials": 10}, r"trials=10: .* 4 at a time \(bracket\); choose 8 or 12"),
        ({"trials": 6, "bracket": 3}, "bracket=3: with rungs=3 and reduction=2 .* choose 4"),
        ({"tuning_seeds": []}, "tuning_seeds=.*: choose one or more"),
        ({"tuning_seeds": [7, 7]}, "tuning_seeds=.*: a seed is named twice"),
        ({"test_seeds": [1, 1]}, "test_seeds=.*: a seed is named twice"),
        ({"test_seeds": [3, 102]}, r"test_seeds=.*: 102 is among hydra.sweeper.tuning_seeds"),
        ({"metric": "gold/win_rate"}, r"metric=gold/win_rate: the judge .*allow_gold=true"),
        ({"metric": "accuracy/mean"}, "allow_gold=true"),
        (
            {"metric": "gold/mean", "measured_on": Source.training},
            "the judge does not score training rounds",
        ),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        SearchOptions(**given)  # type: ignore[arg-type]


def test_gold_is_allowed_where_it_is_asked_for() -> None:
    assert SearchOptions(metric="gold/win_rate", allow_gold=True).needs_judge
    assert not SearchOptions(metric="reward/mean", measured_on=Source.training).needs_judge
    assert not SearchOptions().needs_judge
