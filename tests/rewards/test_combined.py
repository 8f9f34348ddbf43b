"""Rewards made of rewards: sums, products, gates, ensembles; and groups without a score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build import evaluator, rollout
from rlhf_lab.experiment.config.config import Config, plain
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.rewards.combined import CombinedReward, CombinedScorer, How
from rlhf_lab.rewards.data_rewards import RuleReward
from rlhf_lab.rewards.function import FunctionReward
from rlhf_lab.rewards.model_options import Combine, EnsembleReward, EnsembleScorer
from rlhf_lab.rewards.options import RewardContext, RewardOptions, build_scorer, num_proxies
from rlhf_lab.runs.folder import metrics
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import stable_hash
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Group
from tests.conftest import MakeConfig
from tests.support.examples import group

TWO = [group(0, [[-1.0], [-1.0]], []), group(1, [[-1.0], [-1.0]], [])]


class Table(Reward):
    """A reward that says what it is told, and counts how often it was asked."""

    def __init__(self, *rows: tuple[float, ...], reference: float = 0.0) -> None:
        self._rows = rows
        self._reference = reference
        self._calls = 0

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        self._calls += 1
        if len(groups[0].samples) == 1:
            return [(self._reference,) for _ in groups]
        return list(self._rows)

    def drain(self) -> Mapping[str, int]:
        calls, self._calls = self._calls, 0
        return {"table_calls": calls}


def combined(options: CombinedReward, **terms: Table) -> CombinedScorer:
    return CombinedScorer(options, terms, lambda group: group.samples[0])


def options(*names: str, **rest: object) -> CombinedReward:
    return CombinedReward(terms={name: RuleReward() for name in names}, **rest)  # type: ignore[arg-type]


def test_a_sum_weighs_its_terms() -> None:
    one, two = Table((1.0, 2.0), (3.0, 4.0)), Table((10.0, 20.0), (30.0, 40.0))
    scorer = combined(options("one", "two", weights={"two": 0.1}), one=one, two=two)
    assert scorer.score(TWO) == [(2.0, 4.0), (6.0, 8.0)]


def test_a_product_multiplies_them() -> None:
    one, two = Table((1.0, 2.0), (3.0, 4.0)), Table((0.0, 1.0), (0.5, -1.0))
    assert combined(options("one", "two", how=How.product), one=one, two=two).score(TWO) == [
        (0.0, 2.0),
        (1.5, -4.0),
    ]


def test_a_closed_gate_hides_every_other_term() -> None:
    quality, fits = Table((5.0, 6.0), (7.0, 8.0)), Table((1.0, 0.0), (0.9, 1.5))
    gated = options("quality", "fits", gates={"fits": 1.0}, closed=-1.0)
    assert combined(gated, quality=quality, fits=fits).score(TWO) == [(5.0, -1.0), (-1.0, 8.0)]


def test_a_calibrated_term_is_the_odds_against_the_reference() -> None:
    quality = Table((2.0, 3.0), (2.0, -1000.0), reference=2.0)
    scorer = combined(options("quality", calibrated=["quality"]), quality=quality)
    first, second = scorer.score(TWO)
    assert first[0] == 0.5
    assert first[1] == pytest.approx(1 / (1 + math.exp(-1.0)))
    assert second == (0.5, 0.0)


def test_a_group_that_one_term_cannot_score_has_no_score() -> None:
    scorer = combined(options("one", "two"), one=Table((1.0, 2.0), ()), two=Table((), (1.0, 1.0)))
    assert scorer.score(TWO) == [(), ()]


def test_the_counts_of_all_terms_come_through_once() -> None:
    scorer = combined(
        options("one", "two"), one=Table((1.0, 2.0), (1.0, 2.0)), two=Table((1.0, 2.0), (1.0, 2.0))
    )
    scorer.score(TWO)
    assert scorer.drain() == {"table_calls": 2}
    assert scorer.drain() == {"table_calls": 0}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"weights": {"three": 1.0}}, "weights names 'three': choose one of one, two"),
        ({"gates": {"three": 1.0}}, "gates names 'three'"),
        (
            {"gates": {"one": 0.0}, "weights": {"one": 1.0}},
            "weights names 'one': choose one of two",
        ),
        ({"gates": {"one": 0.0}, "calibrated": ["one"]}, "calibrated names 'one'"),
        ({"gates": {"one": 0.0, "two": 0.0}}, "has no term to score by"),
        ({"how": How.product, "weights": {"one": 1.0}}, "factors have no weights"),
        ({"closed": math.inf}, r"reward.closed=inf is out of range"),
    ],
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        options("one", "two", **wrong)


@pytest.mark.parametrize(
    ("combine", "expected"),
    [(Combine.mean, 2.0), (Combine.worst, 1.0), (Combine.uncertainty, 2.0 - 0.5 * 2 / 3)],
)
def test_an_ensemble_is_its_mean_its_worst_or_its_mean_less_doubt(
    combine: Combine, expected: float
) -> None:
    members = [Table((score, 4.0), (0.0, 0.0)) for score in (1.0, 2.0, 3.0)]
    chosen = EnsembleReward(combine=combine, members=3, uncertainty_coef=0.5)
    scored = EnsembleScorer(chosen, members).score(TWO)
    assert scored[0][0] == pytest.approx(expected)
    assert scored[0][1] == 4.0, "members that agree leave no doubt"
    assert scored[1] == (0.0, 0.0)


def test_an_ensemble_of_one_is_refused() -> None:
    with pytest.raises(UserError, match=r"reward\.members=2 or more"):
        EnsembleReward(members=1)


def test_terms_are_named_on_the_command_line(make_config: MakeConfig) -> None:
    config = make_config(
        "reward=combined",
        "+reward@reward.terms.gold=task_rule",
        "+reward@reward.terms.proxy=ensemble",
        "reward.terms.proxy.members=2",
        "+reward.weights.proxy=0.5",
    )
    assert list(config.reward.terms) == ["gold", "proxy"]
    assert config.reward.terms["proxy"] == EnsembleReward(members=2)
    assert config.reward.weights == {"proxy": 0.5}
    assert num_proxies(config.reward) == 2
    assert plain(config)["reward"]["terms"]["gold"] == {
        "part": "RuleReward",
        "name": "task_rule",
        "workers": 0,
        "time_limit_s": 0.0,
        "on_error": "stop",
    }


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("reward=combined", r"\+reward@reward.terms.NAME=OPTION"),
        ("+reward.terms.x.y=1", r"reward.terms.x=.* has no schema.*\+reward@reward.terms.x=OPTION"),
        ("+reward.terms.gold.clip=1", r"reward.terms.gold.clip=1 is not an option"),
    ],
)
def test_a_term_of_unknown_shape_is_refused(
    make_config: MakeConfig, override: str, complaint: str
) -> None:
    extra = [] if override == "reward=combined" else ["+reward@reward.terms.gold=task_rule"]
    with pytest.raises(UserError, match=complaint):
        make_config("reward=combined", *extra, override)


def train(config: Config) -> Path:
    facts = {"manifest": {}, "config_yaml": "", "resolved": plain(config)}
    return lifecycle.train(config, Console(quiet=True), facts)


class Patchy(Reward):
    """A reward of the tokens, which now and then cannot score a group."""

    def __init__(self, every: int) -> None:
        self._every = every

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [
            ()
            if group.prompt.id % self._every == 0
            else tuple(stable_hash(*sample.tokens) % 64 / 64 for sample in group.samples)
            for group in groups
        ]

    def drain(self) -> Mapping[str, int]:
        return {"table_calls": 1}


def patch(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    real = evaluator.build_reward

    def reward(key: str, config: Any, *given: Any) -> Any:
        is_function = isinstance(getattr(config, key), FunctionReward)
        return Patchy(every) if is_function else real(key, config, *given)

    monkeypatch.setattr(rollout, "build_reward", reward)


# The function is never called: `patch` puts another reward in its place.
SHORT = (
    *("task=arithmetic", "eval=none", "run.updates_per_round=2"),
    *("reward=function", "reward.path=rlhf_lab.rewards.rules.not_empty"),
)


@pytest.mark.parametrize("algo", ["online_dpo", "rloo", "ppo"])
def test_groups_that_cannot_be_scored_are_dropped_and_counted(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, algo: str
) -> None:
    patch(monkeypatch, every=3)
    ends = []
    for mode in (["mode=lagged"], ["mode=async", "mode.executor=thread"]):
        folder = train(make_config(*SHORT, f"algo={algo}", *mode))
        last = metrics(folder)[-1]
        assert last["total/prompts"] == 16
        assert last["total/unscored_groups"] == 6, "of the prompts 0 to 15, every third"
        assert last["total/unscored_tokens"] > 0
        assert last["total/table_calls"] == last["total/rounds"]
        assert last["total/updates"] == 4
        exact = {k: v for k, v in last.items() if not k.startswith(("seconds/", "timing/"))}
        ends.append(exact)
    assert ends[0] == ends[1], "dropping depends on nothing but the group"


def test_a_round_without_any_score_stops_the_run(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch, every=1)
    with pytest.raises(RuntimeError, match="none of the 8 groups of a round could be scored"):
        train(make_config(*SHORT))


def test_members_of_an_ensemble_differ_and_the_first_is_the_single_proxy(
    make_config: MakeConfig,
) -> None:
    ensemble = make_config("reward=ensemble", "reward.members=2")
    stages = Artifacts(ensemble, Console(quiet=True))
    first, second = stages.proxies()
    (single,) = Artifacts(make_config(), Console(quiet=True)).proxies()
    assert first.folder == single.folder != second.folder
    assert first.metrics["held_out_loss"] != second.metrics["held_out_loss"]


# --- rewards of plugins -------------------------------------------------------------------------


@dataclass(frozen=True)
class Own(RewardOptions):
    """A plugin's option that builds this object."""

    built: Any = None
    name: str = "own"

    def build(self, context: RewardContext) -> Any:
        return self.built


class Plain:
    """A reward of a plugin that extends nothing."""

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [tuple(2.0 for _ in group.samples) for group in groups]


class Counted(Plain):
    def drain(self) -> dict[str, int]:
        return {"calls": 1}


def test_a_plugins_reward_needs_score_alone_and_the_base_class_for_more() -> None:
    context: Any = SimpleNamespace(key="reward.terms.own")
    groups = [group(0, [[-1.0], [-1.0]], [])]
    live = build_scorer(Own(Plain()), context)
    assert live.score(groups) == [(2.0, 2.0)] == [live.scored(groups)[0].rewards]
    assert live.drain() == {} and not live.compares
    with pytest.raises(UserError, match=r"reward.terms.own=own: .*Counted.* a method drain "):
        build_scorer(Own(Counted()), context)
    with pytest.raises(UserError, match=r"\(object\) has no method score"):
        build_scorer(Own(object()), context)
