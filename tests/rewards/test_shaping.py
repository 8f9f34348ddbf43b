"""What is made of training rewards: each transformation by hand, their order, and who is shaped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.experiment.config.config import plain
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rewards.shaping import (
    MissingEos,
    ShapedScorer,
    ShapingOptions,
    length_rewards,
    overlong,
    shaped,
)
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import UNTIMED, outcome

LIMIT = 20


class Table(Reward):
    """A reward that says what it is told."""

    def __init__(self, *rows: tuple[float, ...]) -> None:
        self._rows = rows

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return list(self._rows)

    def drain(self) -> Mapping[str, int]:
        return {"table_calls": 1}


def group(*lengths: int) -> Group:
    """Samples of these lengths; those of the limit's have no end token."""
    samples = tuple(
        Sample(tuple(range(n)), (0.0,) * n, 0, Finish.length if n == LIMIT else Finish.eos, "t")
        for n in lengths
    )
    return Group(Prompt(0, (1,), Example("row/0", "a", "b")), samples)


def score(rewards: tuple[float, ...], lengths: Sequence[int], **options: Any) -> tuple[float, ...]:
    (row,) = ShapedScorer(Table(rewards), ShapingOptions(**options), LIMIT).score([group(*lengths)])
    return row


def test_nothing_is_on_by_default_and_the_reward_stays_itself() -> None:
    reward = Table((1.0,))
    assert shaped(reward, ShapingOptions(), LIMIT) is reward
    assert not ShapingOptions().is_on
    assert score((1.25, -3.5), [3, LIMIT]) == (1.25, -3.5)


def test_clip_leaves_no_reward_above_zero() -> None:
    assert score((0.9, 0.5, -1.0), [1, 2, 3], clip=True, eta=0.5) == (0.0, 0.0, -1.5)
    assert score((0.9, -1.0), [1, 2], clip=True) == (0.0, -1.0)


def test_a_bound_holds_on_both_sides() -> None:
    assert score((9.0, -9.0, 0.5), [1, 2, 3], bound=2.0) == (2.0, -2.0, 0.5)


def test_a_missing_end_token_replaces_the_reward_or_costs() -> None:
    fixed = score((1.0, 1.0), [3, LIMIT], missing_eos=MissingEos.fixed, missing_eos_value=-1.0)
    assert fixed == (1.0, -1.0)
    less = score((1.0, 1.0), [3, LIMIT], missing_eos=MissingEos.penalty, missing_eos_value=0.25)
    assert less == (1.0, 0.75)


def test_the_length_reward_of_kimi() -> None:
    # Lengths 4, 6, 12: lambda = 1/2 - (n - 4) / 8 = 0.5, 0.25, -0.5.
    assert length_rewards([4, 6, 12], [True] * 3) == [0.5, 0.25, -0.5]
    assert length_rewards([4, 6, 12], [False] * 3) == [0.0, 0.0, -0.5]
    assert length_rewards([7, 7], [True, False]) == [0.0, 0.0]
    shaped_ = score((1.0, 0.0, 1.0), [4, 6, 12], length_weight=2.0)
    assert shaped_ == (2.0, 0.0, 0.0), "1 + 2 * 0.5; 0 + 2 * min(0, 0.25); 1 - 2 * 0.5"
    lenient = score((0.6, 0.0, 0.5), [4, 6, 12], length_weight=1.0, correct_from=0.6)
    assert lenient == (1.1, 0.0, 0.0)


def test_no_wrong_answer_is_ever_paid_for_being_short() -> None:
    for lengths in itertools.product([1, 3, 8], repeat=3):
        right = length_rewards(lengths, [True] * 3)
        wrong = length_rewards(lengths, [False] * 3)
        assert all(-0.5 <= w <= 0.0 and w <= r <= 0.5 for r, w in zip(right, wrong, strict=True))


def test_overlong_answers_are_punished_as_in_dapo() -> None:
    # Limit 20, buffer 5: nothing up to 15 tokens, then a fifth more with each one.
    assert [overlong(n, 5, 20) for n in (1, 15, 16, 18, 20, 25)] == [0, 0, 0.2, 0.6, 1, 1]
    assert overlong(20, 0, 20) == 0
    assert score((1.0, 1.0), [15, LIMIT], overlong_buffer=5, overlong_penalty=0.5) == (1.0, 0.5)


def test_all_together_in_the_documented_order() -> None:
    # reward 3, 18 tokens of 20, ended: clip min(3 - 1, 0) = 0; no bound below; length reward of the
    # longer of two: -0.5, weight 1 (correct before the clip, as 3 >= 1); overlong 0.6 * 2.
    # reward -4, limit, not ended would be longer; here 8 tokens: clip -5, bound -2, lambda 0.5 but
    # wrong: 0.
    both = score(
        (3.0, -4.0),
        [18, 8],
        clip=True,
        eta=1.0,
        bound=2.0,
        length_weight=1.0,
        overlong_buffer=5,
        overlong_penalty=2.0,
    )
    assert both[0] == pytest.approx(0.0 - 0.5 - 1.2)
    assert both[1] == -2.0
    ended = score((3.0,), [LIMIT], bound=1.0, missing_eos=MissingEos.fixed, missing_eos_value=-7.0)
    assert ended == (-7.0,), "a fixed reward is not bounded: the end token comes later"


def test_groups_without_a_score_stay_without_and_counts_pass_through() -> None:
    live = ShapedScorer(Table((), (1.0,)), ShapingOptions(bound=0.5), LIMIT)
    assert live.score([group(1), group(1)]) == [(), (0.5,)]
    assert live.drain() == {"table_calls": 1}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"bound": -1.0}, r"shaping\.bound=-1.0"),
        ({"length_weight": -1.0}, r"shaping\.length_weight=-1.0"),
        ({"eta": 0.5}, r"shaping\.eta=0.5 without a clip"),
        ({"missing_eos": MissingEos.penalty}, r"missing_eos_value=0.0 with missing_eos=penalty"),
        ({"correct_from": math.nan}, r"shaping\.correct_from=nan"),
        ({"overlong_buffer": -2}, r"shaping\.overlong_buffer=-2"),
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        ShapingOptions(**wrong)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["shaping.overlong_buffer=999"], "more than the response limit of"),
        (["algo=dapo", "shaping.overlong_buffer=4"], r"pass algo\.overlong_penalty=0"),
        (
            ["algo=dpo", "generator=pairs", "shaping.bound=1"],
            r"shaping\.bound=1.0 with generator=pairs",
        ),
    ],
)
def test_shaping_that_cannot_be_meant_is_refused(
    make_config: MakeConfig, overrides: list[str], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        check(make_config(*overrides))
    check(make_config("algo=dapo", "algo.overlong_penalty=0", "shaping.overlong_buffer=4"))


SUMS = (
    *("task=arithmetic", "algo=rloo", "run.updates=2"),
    *("reward=function", "reward.path=rlhf_lab.rewards.rules.finished"),
)


def test_a_run_trains_on_shaped_rewards_and_is_judged_by_plain_ones(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    ends = {}
    for name, rest in {
        "plain": ["mode=lagged"],
        "on": ["mode=lagged", "shaping.bound=0.001"],
        "async": ["mode=async", "mode.executor=thread", "shaping.bound=0.001"],
    }.items():
        judged = "eval=none" if name == "async" else "eval.snapshots=1"
        config = make_config(*SUMS, *rest, judged, f"output.dir={tmp_path}/{name}")
        lifecycle.train(config, Console(quiet=True), {**FACTS, "resolved": plain(config)})
        ends[name] = outcome(tmp_path / name)
    assert ends["on"] == ends["async"]
    assert all(abs(row["reward/mean"]) < 0.00101 for row in ends["on"][0])
    assert all(abs(row["reward/mean"]) > 0.01 for row in ends["plain"][0])
    evaluated = [read_rows(tmp_path / name / "evals.jsonl")[0] for name in ("plain", "on")]
    first, second = [
        {k: v for k, v in row.items() if not k.startswith(UNTIMED)} for row in evaluated
    ]
    assert first == second, "version 0 is the same, and so is what is said of it"
    assert abs(first["proxy/mean"]) > 0.01


def test_symlog_squashes_both_signs_and_keeps_small_rewards() -> None:
    found = score((math.e - 1, 1 - math.e, 0.0, 0.001), (1, 1, 1, 1), symlog=True)
    assert found == pytest.approx((1.0, -1.0, 0.0, math.log(1.001)))
    # the bound comes after it
    assert score((100.0,), (1,), symlog=True, bound=2.0) == (2.0,)
