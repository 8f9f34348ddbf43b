"""Win-rates, ties, length control, the gap of proxy and gold, pass@k and maj@k, runs in a row."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlhf_lab.evaluation import sft_distance
from rlhf_lab.evaluation.evaluator import Evaluator
from rlhf_lab.evaluation.measures import (
    Judged,
    Scored,
    by_comparison,
    by_score,
    gap_metrics,
    kinds_of,
    length_controlled,
    majority_at_k,
    pass_at_k,
    rank_correlation,
    ranks,
    solved_metrics,
    subsets,
    vote,
    wilson,
    win_metrics,
    with_interval,
)
from rlhf_lab.evaluation.options import EvalOptions
from rlhf_lab.evaluation.sft_distance import distance_metrics
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.evaluator import build_evaluator
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import evaluate_again as again
from rlhf_lab.experiment.run.evaluate import Evaluated, show
from rlhf_lab.models.batching import collate
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.weights import load_weights
from rlhf_lab.runs import provenance
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.locks import try_lock
from rlhf_lab.runs.run_directory import run_lock
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.tasks.gsm8k import Gsm8k, Verify
from rlhf_lab.tasks.reasoning_gym import ReasoningGym
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.data import Verdict, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Generator
from rlhf_lab.types.reward import Reward
from rlhf_lab.types.samples import Group
from tests.conftest import MakeConfig
from tests.support.examples import call, group
from tests.support.survival import exact_rows


def logit(share: float) -> float:
    return math.log(share / (1 - share))


# -- win-rates


def test_halves_count_as_half_a_success() -> None:
    low, high = wilson(7.5, 10)
    assert wilson(7, 10)[0] < low < wilson(8, 10)[0]
    assert wilson(7, 10)[1] < high < wilson(8, 10)[1]
    # share 0.75, z = 1.96: (0.75 + 0.19207) / 1.38415 -+ 1.96 sqrt(0.01875 + 0.0096) / 1.38415
    assert low == pytest.approx(0.44218, abs=1e-4)
    assert high == pytest.approx(0.91905, abs=1e-4)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_an_interval_holds_its_mean(values: list[float]) -> None:
    found = with_interval("x", values)
    assert 0 <= found["x_low"] <= found["x"] + 1e-12
    assert found["x"] - 1e-12 <= found["x_high"] <= 1


def test_a_tie_is_no_win_by_scores_and_half_a_win_by_comparison() -> None:
    assert by_score((2.0, 9.0), (1.0,)) == Judged(2.0, 1.0, win=1.0, points=1.0)
    assert by_score((1.0,), (1.0,)) == Judged(1.0, 1.0, win=0.0, points=0.5)
    assert by_score((), (1.0,)) is by_score((1.0,), ()) is by_comparison(()) is None
    assert by_comparison((Verdict(0.5, False),)) == Judged(0.5, 0.5, 0.5, 0.5, agrees=False)


def test_win_metrics_by_hand() -> None:
    judged = [by_score((mine,), (1.0,)) for mine in (2.0, 1.0, 0.0, 3.0)]
    found = win_metrics([one for one in judged if one], [0, 0, 0, 0])
    assert found["gold/win_rate"] == 0.5
    assert found["gold/tie_rate"] == 0.25
    assert found["gold/win_rate_length_controlled"] == 0.625, "two wins and half of a tie, of four"
    assert (found["gold/mean"], found["gold/reference_mean"]) == (1.5, 1.0)
    assert (found["gold/win_rate_low"], found["gold/win_rate_high"]) == wilson(2, 4)
    assert "judge/agreement" not in found


# -- at equal length


def test_length_control_of_two_lengths_is_solved_by_hand() -> None:
    # Differences 3 and -1: each length gets its own share without a ridge, 8/10 and 2/5, and the
    # line through both logits is read at 0.
    differences = [3] * 10 + [-1] * 5
    points = [1.0] * 8 + [0.0] * 2 + [1.0] * 2 + [0.0] * 3
    spread = np.std(differences)
    long, short = math.tanh(3 / spread), math.tanh(-1 / spread)
    at_zero = (logit(0.4) * long - logit(0.8) * short) / (long - short)
    expected = 1 / (1 + math.exp(-at_zero))
    assert length_controlled(points, differences, ridge=0.0) == pytest.approx(expected, abs=1e-8)
    assert length_controlled(points, differences) == pytest.approx(expected, abs=1e-3)
    assert 0.4 < expected < 10 / 15, "long samples had won by their length"


def test_length_control_without_the_length_term_is_the_plain_win_rate() -> None:
    points = [1.0, 0.5, 0.0, 1.0]
    for same in (0, 4):
        assert length_controlled(points, [same] * 4) == 0.625
    # Wins as often when longer as when shorter by the same: the slope is 0.
    assert length_controlled([1.0, 0.0, 1.0, 0.0], [2, 2, -2, -2]) == pytest.approx(0.5)


@pytest.mark.parametrize("ends", [0.0, 0.5, 1.0])
def test_length_control_of_one_outcome_is_that_outcome(ends: float) -> None:
    assert length_controlled([ends] * 3, [1, 2, 3]) == ends


def test_length_control_stays_finite_where_length_decides_everything() -> None:
    rate = length_controlled([1.0, 1.0, 0.0, 0.0], [5, 6, -5, -6])
    assert rate == pytest.approx(0.5, abs=1e-6)
    assert 0 < length_controlled([1.0, 1.0, 0.0], [1, 2, 0]) < 0.5


@settings(deadline=None)
@example([(0.0, 0), (0.0, -11), (1.0, 4)])
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.integers(-50, 50)), min_size=1, max_size=40
    )
)
def test_length_control_is_a_share_and_turns_around_with_the_sides(
    rows: list[tuple[float, int]],
) -> None:
    points, differences = [row[0] for row in rows], [row[1] for row in rows]
    rate = length_controlled(points, differences)
    assert 0 <= rate <= 1
    turned = length_controlled([1 - one for one in points], [-one for one in differences])
    assert turned == pytest.approx(1 - rate, abs=1e-6)


# -- proxy against gold


def test_the_gap_is_measured_in_the_references_spread() -> None:
    # Proxy: margins 3, 1 (mean 2) over references of std 1 -> 2. Gold: margins -10, 10 (mean 0)
    # over references of std 20 -> 0.
    proxy = [Scored(3.0, 0.0), Scored(3.0, 2.0)]
    gold = [Scored(-10.0, 0.0), Scored(50.0, 40.0)]
    found = gap_metrics(gold, proxy, wins=[0.0, 1.0])
    assert found == {
        "proxy/win_rate": 1.0,
        "gap/win_rate": 0.5,
        "gap/proxy_gold": pytest.approx(2.0),
        "gap/rank_correlation": pytest.approx(-1.0),
    }


@given(st.floats(0.1, 10), st.floats(-5, 5))
def test_the_gap_knows_no_scale(scale: float, shift: float) -> None:
    proxy = [Scored(1.0, 0.0), Scored(2.0, 1.0), Scored(2.0, 5.0)]
    gold = [Scored(scale * s.sample + shift, scale * s.reference + shift) for s in proxy]
    found = gap_metrics(gold, proxy, [1.0, 1.0, 0.0])
    assert found["gap/proxy_gold"] == pytest.approx(0.0, abs=1e-6)
    assert found["gap/win_rate"] == 0.0


def test_gold_has_no_gap_to_itself_and_what_cannot_be_computed_is_left_out() -> None:
    same = [Scored(1.0, 1.0), Scored(0.0, 1.0)]
    assert gap_metrics(same, list(same), [0.0, 0.0]) == {
        "proxy/win_rate": 0.0,
        "gap/win_rate": 0.0,
        "gap/proxy_gold": 0.0,
        "gap/rank_correlation": pytest.approx(1.0),
    }
    other = [Scored(2.0, 1.0), Scored(2.0, 1.0)]
    assert set(gap_metrics(same, other, [0.0, 0.0])) == {"proxy/win_rate", "gap/win_rate"}


def test_equal_numbers_share_a_rank() -> None:
    assert ranks([3.0, 1.0, 3.0, 7.0]) == [2.5, 1.0, 2.5, 4.0]
    # Ranks 1.5 1.5 3 4 and 1 2 3 4, less 2.5: -1 -1 .5 1.5 and -1.5 -.5 .5 1.5
    assert rank_correlation([0.0, 0.0, 1.0, 2.0], [5.0, 6.0, 7.0, 9.0]) == pytest.approx(
        4.5 / math.sqrt(4.5 * 5.0)
    )
    assert rank_correlation([1.0, 1.0], [1.0, 2.0]) is None


# -- right and wrong


@pytest.mark.parametrize(
    ("num", "right", "k", "expected"),
    [(4, 2, 1, 0.5), (4, 2, 2, 5 / 6), (4, 0, 4, 0.0), (4, 1, 4, 1.0), (10, 3, 5, 1 - 21 / 252)],
)
def test_pass_at_k_by_hand(num: int, right: int, k: int, expected: float) -> None:
    assert pass_at_k(num, right, k) == pytest.approx(expected)


def test_the_commonest_answer_wins_and_of_equal_ones_the_first() -> None:
    assert vote([0, 1, 1]) == 1
    assert vote([0, 1, 1, 0]) == 0
    assert vote([None, 1, None]) == 1
    assert vote([None, None]) is None


def test_majority_at_k_by_hand() -> None:
    # Answers a b b, b is right. Pairs: ab -> a (first), ab -> a, bb -> b.
    answers, right = [0, 1, 1], [False, True, True]
    assert majority_at_k(answers, right, 1, 0) == pytest.approx(2 / 3)
    assert majority_at_k(answers, right, 2, 0) == pytest.approx(1 / 3)
    assert majority_at_k(answers, right, 3, 0) == 1.0
    # A sample without an answer does not vote: a, none, none.
    assert majority_at_k([0, None, None], [True, False, False], 2, 0) == pytest.approx(2 / 3)


def test_many_subsets_are_drawn_by_the_prompt_and_near_the_exact_share() -> None:
    drawn = list(subsets(20, 5, prompt_id=3))
    assert drawn == list(subsets(20, 5, prompt_id=3)) != list(subsets(20, 5, prompt_id=4))
    assert len(drawn) == 1024
    assert all(len(set(row)) == 5 and list(row) == sorted(row) for row in drawn)
    # One right sample of 20, all others mute: it is among 5 with chance 1/4.
    answers = [0, *[None] * 19]
    share = majority_at_k(answers, [True, *[False] * 19], 5, 3)
    assert share == pytest.approx(0.25, abs=4 * math.sqrt(0.1875 / 1024))


def written(id_: int, *texts: str) -> Group:
    whole = group(id_, [[-1.0] for _ in texts], [])
    pairs = zip(whole.samples, texts, strict=True)
    return replace(whole, samples=tuple(replace(sample, text=text) for sample, text in pairs))


def test_solved_metrics_by_hand() -> None:
    groups = [written(0, "7", "8", "8", ""), written(1, "1", "2", "3", "4")]
    scores = [(0.0, 1.0, 1.0, 0.0), (1.0, 0.0, 0.99, 0.0)]
    found = solved_metrics(groups, scores, [1, 2, 4], Arithmetic())
    values = {key: value for key, value in found.items() if not key.endswith(("_low", "_high"))}
    assert values == {
        "accuracy/mean": 0.5,
        "pass/at_1": pytest.approx((1 / 2 + 1 / 4) / 2),
        "pass/at_2": pytest.approx((5 / 6 + 1 / 2) / 2),
        "pass/at_4": 1.0,
        # Pairs of 7 8 8 -: 7, 7, 7, 8, 8, 8; of four different ones the first: 1 in three of six.
        "majority/at_1": pytest.approx((1 / 2 + 1 / 4) / 2),
        "majority/at_2": pytest.approx((3 / 6 + 3 / 6) / 2),
        "majority/at_4": 1.0,
    }
    one = solved_metrics([written(0, "7")], [(1.0,)], [1], Arithmetic())
    assert set(one) == {"accuracy/mean", "accuracy/mean_low", "accuracy/mean_high"}
    mute = solved_metrics(groups, scores, [1], None)
    assert not any(key.startswith("majority") for key in mute), "no answers, no votes"


def test_answers_are_what_each_rule_reads() -> None:
    exact, equal = Gsm8k(), Gsm8k(verify=Verify.math_verify)
    texts = ("so #### 1,000.", "#### 1000.0", "no answer", "#### 2000/2", "#### 7")
    assert kinds_of(written(0, *texts), exact) == [0, 1, None, 3, 4]
    assert kinds_of(written(0, *texts), equal) == [0, 0, None, 0, 4]
    gym = ReasoningGym()
    assert gym.answer("I think\nAnswer: 4 ") == "4"
    assert gym.answer("\n ") is None
    assert Arithmetic().answer("") is None
    assert not TldrNano().is_verifiable and not TldrNano().has_answers, "its rule is graded"


# -- the evaluator


@dataclass
class FakeJudge(Reward):
    """Compares by a table of verdicts, and counts its calls."""

    compares: ClassVar[bool] = True

    verdicts: Sequence[tuple[Verdict, ...]]
    calls: int = 0

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        raise AssertionError("which compares")

    def compare(
        self, groups: Sequence[Group], references: Sequence[Group]
    ) -> list[tuple[Verdict, ...]]:
        assert [g.prompt for g in groups] == [r.prompt for r in references]
        assert all(len(g.samples) == 1 for g in (*groups, *references))
        self.calls += len(groups)
        return list(self.verdicts)

    def drain(self) -> Mapping[str, int]:
        calls, self.calls = self.calls, 0
        return {"calls": calls}


class Patchy(Reward):
    """Cannot score some prompts."""

    def __init__(self, missing: set[int], value: float = 1.0) -> None:
        self.missing = missing
        self.value = value

    def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
        return [
            () if place in self.missing else tuple(self.value for _ in group.samples)
            for place, group in enumerate(groups)
        ]


Live = Callable[..., tuple[Evaluator, Weights]]


@pytest.fixture
def live(make_config: MakeConfig) -> Live:
    """An evaluator of a tiny run over 4 prompts, and weights that no training has touched."""

    def make(*overrides: str) -> tuple[Evaluator, Weights]:
        config = make_config("eval.prompts=4", *overrides)
        sources = Artifacts(config, Console(quiet=True)).sources()
        model, _ = load_policy(config.model, config.task.tokenizer(), seed=5)
        return build_evaluator(config, sources), Weights(1, dict(model.named_parameters()))

    return make


def test_a_judge_that_compares_both_orders(live: Live) -> None:
    evaluator, weights = live()
    win, tie, loss = Verdict(1.0, True), Verdict(0.5, False), Verdict(0.0, True)
    judge = FakeJudge([(win,), (tie,), (), (loss,)])
    metrics, table = replace(evaluator, gold=judge).evaluate(weights)
    assert metrics["eval/prompts"] == 4
    assert metrics["eval/prompts_unjudged"] == 1
    assert metrics["gold/win_rate"] == metrics["gold/mean"] == 0.5
    assert (metrics["gold/win_rate_low"], metrics["gold/win_rate_high"]) == wilson(1.5, 3)
    assert metrics["gold/tie_rate"] == pytest.approx(1 / 3)
    assert metrics["judge/agreement"] == pytest.approx(2 / 3)
    assert metrics["judge/calls"] == 4
    assert metrics["gold/reference_mean"] == 0.5
    assert metrics["gap/win_rate"] == pytest.approx(metrics["proxy/win_rate"] - 0.5)
    assert "gap/proxy_gold" not in metrics, "comparisons have no scale"
    assert [row["gold"] for row in table] == [1.0, 0.5, None, 0.0]


def test_the_first_prompts_have_the_samples_that_all_have(live: Live) -> None:
    evaluator, weights = live("eval.chunk_groups=2")
    whole, table = evaluator.evaluate(weights)
    some, first = evaluator.evaluate(weights, 2)
    assert (whole["eval/prompts"], some["eval/prompts"]) == (4, 2)
    assert first == table[:2] and len(table) == 4
    assert evaluator.evaluate(weights, 4)[0] == whole


def test_kl_is_that_of_two_readings_where_samples_are_judged_at_their_temperature(
    live: Live,
) -> None:
    """One reading of the reference gives the log-probs at both temperatures."""
    evaluator, weights = live()
    load_weights(evaluator.policy, weights)
    groups = evaluator._generate(evaluator.judged, weights, evaluator.prompts, 1)
    batch = collate(groups, evaluator.pad_id)
    again = collate(groups, evaluator.pad_id)
    models = evaluator.policy, evaluator.reference
    with torch.inference_mode():
        one = distance_metrics(*models, batch, batch, 0.7)
        two = distance_metrics(*models, batch, again, 0.7)
    assert one == two and one["kl/sft_k1"] != 0


def test_a_pass_on_a_gpu_has_room_for_its_logits(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator, weights = live()
    groups = evaluator._generate(evaluator.judged, weights, evaluator.prompts, 1)
    batch = collate(groups, evaluator.pad_id)
    model = evaluator.policy
    width = batch.prompt_BS.shape[1] + batch.read_width
    monkeypatch.setattr(sft_distance, "device_of", lambda _: torch.device("cuda"))
    assert len(list(sft_distance.parts_of(batch, model))) == 1
    most = 3 * width
    monkeypatch.setattr(sft_distance, "LOGITS", most * model.config.vocab_size)
    parts = list(sft_distance.parts_of(batch, model))
    assert len(parts) > 1
    for part, _ in parts:
        assert len(part) * (part.prompt_BS.shape[1] + part.read_width) <= most
    assert sorted(torch.cat([index_B for _, index_B in parts]).tolist()) == list(range(len(batch)))


def test_the_log_probs_of_samples_stand_for_a_second_reading_by_the_policy(live: Live) -> None:
    evaluator, weights = live()
    assert evaluator.has_policy_logps
    moved = {name: tensor + 0.01 for name, tensor in weights.state.items()}
    own, _ = evaluator.evaluate(replace(weights, state=moved))
    read, _ = replace(evaluator, has_policy_logps=False).evaluate(replace(weights, state=moved))
    assert own["kl/sft_k1"] == pytest.approx(read["kl/sft_k1"], abs=1e-5)
    assert own["kl/sft_k3"] == pytest.approx(read["kl/sft_k3"], rel=2e-6)
    assert abs(own["kl/sft_k1"]) > 1e-3
    assert {k for k in own if own[k] != read[k]} <= {"kl/sft_k1", "kl/sft_k3"}


def test_a_generator_of_other_numerics_does_not_stand_for_the_policy(live: Live) -> None:
    assert not live("generator.dtype=bfloat16")[0].has_policy_logps
    assert live("generator.round_weights=int8")[0].has_policy_logps, "evaluation does not round"


def test_the_last_version_may_answer_more_prompts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    own = ("run.updates=2", "eval.prompts=3", "eval.last_prompts=5", "eval.snapshots=2")
    where = (f"output.dir={tmp_path}/run", f"output.cache={cache}", "stage_seed=1", "seed=7")
    assert call("train", "debug=tiny", *own, *where, monkeypatch=monkeypatch) == 0
    rows = read_rows(tmp_path / "run" / "evals.jsonl")
    assert [row["eval/prompts"] for row in rows] == [3, 3, 3]
    (last,) = read_rows(tmp_path / "run" / "evals-last.jsonl")
    assert (last["version"], last["eval/prompts"]) == (2, 5)
    assert last["stage/sft_loss"] == rows[0]["stage/sft_loss"]
    # What the stages reached is recorded with each version.
    assert len({row["stage/sft_loss"] for row in rows}) == 1
    assert 0 <= rows[0]["stage/proxy_accuracy"] <= 1


def test_prompts_without_a_score_are_left_out_and_counted(live: Live) -> None:
    evaluator, weights = live()
    whole, _ = evaluator.evaluate(weights)
    patchy = replace(evaluator, gold=Patchy({0, 2}), proxy=Patchy({1}, value=3.0))
    metrics, table = patchy.evaluate(weights)
    assert metrics["eval/prompts_unjudged"] == 2
    assert metrics["proxy/prompts_unscored"] == 1
    assert metrics["gold/tie_rate"] == 1.0
    assert metrics["gold/win_rate_length_controlled"] == 0.5
    assert metrics["proxy/mean"] == 3.0
    assert [row["gold"] for row in table] == [None, 1.0, None, 1.0]
    for exact in ("kl/sft_k1", "sample/length", "eval/generated_tokens"):
        assert metrics[exact] == whole[exact], "these need no judge"
    mute, _ = replace(evaluator, proxy=Patchy({0, 1, 2, 3})).evaluate(weights)
    assert not {"proxy/mean", "gap/win_rate"} & set(mute)


def test_a_judge_that_judges_nothing_is_an_error(live: Live) -> None:
    evaluator, weights = live()
    with pytest.raises(UserError, match="could judge none of 4 prompts, judge/calls 4: see to it"):
        replace(evaluator, gold=FakeJudge([()] * 4)).evaluate(weights)


def test_references_are_judged_once_for_all_versions(live: Live) -> None:
    evaluator, weights = live()
    asked: list[int] = []

    class Counting(Patchy):
        def score(self, groups: Sequence[Group]) -> list[tuple[float, ...]]:
            asked.append(len(groups))
            return super().score(groups)

    judge = replace(evaluator, gold=Counting(set()))
    assert judge.evaluate(weights)[0] == judge.evaluate(weights)[0]
    assert len(asked) == 3, "references once, samples of either version"


def test_judged_samples_may_be_longer_than_those_of_training(live: Live) -> None:
    """The KL's samples keep the length of training; references are as long as what is judged."""
    same, weights = live("generator.max_new_tokens=4")
    longer, _ = live("generator.max_new_tokens=4", "eval.max_new_tokens=9")
    assert same.judged is same.sampled
    assert longer.judged is not longer.sampled
    lengths = []
    for evaluator in (same, longer):
        found = Counting(evaluator.judged), Counting(evaluator.sampled)
        replace(evaluator, judged=found[0], sampled=found[1]).evaluate(weights)
        lengths.append([one.longest for one in found])
    assert lengths[0][0] <= 4 < lengths[1][0] <= 9
    assert lengths[1][1] <= 4
    assert max(len(group.samples[0].tokens) for group in same.references) <= 4
    assert 4 < max(len(group.samples[0].tokens) for group in longer.references) <= 9


class Counting(Generator):
    """A generator that notes the longest of its samples."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.longest = 0

    def generate(self, feed: Any, chunk: Any) -> tuple[Group, ...]:
        groups: tuple[Group, ...] = self.generator.generate(feed, chunk)
        lengths = [len(sample.tokens) for group in groups for sample in group.samples]
        self.longest = max(self.longest, *lengths)
        return groups


def test_several_samples_keep_the_first_and_the_chunks_rows(live: Live) -> None:
    options = ("task=arithmetic", "algo=rloo", "reward=task_rule")
    one, weights = live(*options)
    four, _ = live(*options, "eval.samples=4", "eval.chunk_groups=8")
    sizes: list[tuple[int, int]] = []
    drawn = four.judged

    class Watched(Generator):
        def generate(self, feed: Any, chunk: Any) -> tuple[Group, ...]:
            sizes.append((len(chunk.prompts), chunk.group_size))
            return drawn.generate(feed, chunk)

    watched = Watched()
    metrics, table = replace(four, judged=watched, sampled=watched).evaluate(weights)
    single, texts = one.evaluate(weights)
    assert sizes == [(2, 4), (2, 4)], "8 rows at a time"
    assert table == texts
    for key in ("accuracy/mean", "gold/mean", "sample/length", "kl/sft_k1"):
        assert metrics[key] == pytest.approx(single[key])
    assert metrics["eval/generated_tokens"] > single["eval/generated_tokens"]
    assert metrics["pass/at_1"] <= metrics["pass/at_4"]
    assert {"majority/at_1", "majority/at_4"} <= set(metrics)
    assert not any(key.startswith(("pass", "majority")) for key in single)
    assert single["gap/proxy_gold"] == single["gap/win_rate"] == 0.0, "the rule is both"


# -- options


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"samples": 0}, "eval.samples=0 is out of range: choose 1 "),
        ({"chunk_groups": 0}, "eval.chunk_groups=0 is out of range: choose 1 "),
        ({"prompts": 0}, "eval.prompts=0 is out of range: choose 1 "),
        ({"snapshots": -1}, "eval.snapshots=-1 is out of range: choose 0 "),
        ({"ks": [1, 4], "samples": 2}, r"eval.ks=\[1, 4\] with eval.samples=2.*eval.samples=4"),
        ({"ks": [0]}, r"eval.ks\[0\]=0"),
        ({"label": "a/b"}, "eval.label='a/b' is part of a file's name"),
        ({"label": "a" * 101}, "part of a file's name: choose at most 100"),
        ({"label": "../x"}, "eval.label"),
        ({"label": ".hidden"}, "eval.label"),
        ({"label": "a b"}, "eval.label"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        EvalOptions(**options)


def test_ks_default_to_one_and_all() -> None:
    assert EvalOptions().sizes == [1]
    assert EvalOptions(samples=8).sizes == [1, 8]
    assert EvalOptions(samples=8, ks=[4, 2, 4], label="test-2.1_a").sizes == [2, 4]


def test_several_samples_need_a_judge_of_right_and_wrong(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"eval.samples=4 with task=tldr_nano and judge=task_rule"):
        check(make_config("eval.samples=4"))
    check(make_config("eval.samples=4", "task=arithmetic"))
    with pytest.raises(UserError, match="judge=reward_model: pass@k needs a judge"):
        check(
            make_config(
                "eval.samples=4", "task=arithmetic", "reward@judge=reward_model", "judge.path=x"
            )
        )


# -- runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """Folder of two runs of the command line, of two tasks, which have been evaluated."""
    folder = tmp_path_factory.mktemp("trained")
    base = ("debug=tiny", "run.updates=2", f"output.cache={cache}")
    with pytest.MonkeyPatch.context() as patch:
        for name, *overrides in (("nano",), ("sums", "task=arithmetic", "algo=rloo")):
            own = (*overrides, f"output.dir={folder}/{name}")
            assert call("train", *base, *own, monkeypatch=patch) == 0
    return folder


@pytest.fixture
def sums(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run of arithmetic."""
    return Path(shutil.copytree(trained / "sums", tmp_path / "sums"))


def test_several_runs_in_one_command_and_one_is_damaged(
    trained: Path,
    sums: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nano, cut, empty = tmp_path / "nano", tmp_path / "cut", tmp_path / "empty"
    shutil.copytree(trained / "nano", nano)
    shutil.copytree(nano, cut)
    last = sorted((cut / "weights").iterdir())[-1]
    last.write_bytes(last.read_bytes()[:-100])
    shutil.copytree(nano, empty)
    (empty / "manifest.json").write_text('{"overrides"')
    before = {path: path.read_bytes() for path in tmp_path.rglob("evals.jsonl")}
    capsys.readouterr()
    runs = [str(folder) for folder in (cut, nano, empty, sums)]
    options = ("eval.label=test", "eval.split=test", "eval.prompts=6", "eval.table_rows=1")
    assert call("evaluate", *runs, *options, monkeypatch=monkeypatch) == 2
    told = capsys.readouterr()
    assert f"{last}: it is damaged" in told.err
    assert f"{empty}/manifest.json: it is not JSON" in told.err
    assert f"2 of 4 runs failed: {cut}, {empty}" in told.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("evals.jsonl")} == before
    for folder in (nano, sums):
        rows = read_rows(folder / "evals-test.jsonl")
        assert [row["version"] for row in rows] == [0, 2]
        assert {(row["eval/split"], row["eval/prompts"]) for row in rows} == {("test", 6)}
        assert all(row["timing/samples_per_second"] > 0 for row in rows)
        assert len(read_rows(folder / "samples-test.jsonl")) == 1
    assert not (cut / "evals-test.jsonl").exists()
    table = told.out[told.out.rindex("evaluation\n") :].splitlines()
    assert table[1].split("  ")[0] == "run"
    assert [line.split()[:2] for line in table[2:]] == [
        [str(folder), version] for folder in (nano, sums) for version in ("0", "2")
    ]
    assert "accuracy [95%]" in table[1] and "samples/s" in table[1]
    assert "unjudged" not in table[1], "nothing was"


def test_an_evaluation_repeats_bit_for_bit_and_passes_at_k(
    sums: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sums
    first = exact_rows(folder / "evals.jsonl")
    assert call("evaluate", str(folder), monkeypatch=monkeypatch) == 0
    assert exact_rows(folder / "evals.jsonl") == first
    capsys.readouterr()
    several = ("eval.samples=4", "eval.ks=[2,4]", "eval.label=k")
    assert call("evaluate", str(folder), *several, monkeypatch=monkeypatch) == 0
    rows = read_rows(folder / "evals-k.jsonl")
    assert rows[0]["pass/at_2"] <= rows[0]["pass/at_4"] <= rows[0]["pass/at_4_high"]
    assert "pass@2 [95%]" in capsys.readouterr().out
    assert exact_rows(folder / "evals.jsonl") == first


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of each file of a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_run_that_is_at_work_is_judged_beside_its_files(
    sums: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((sums / "manifest.json").read_text())
    at_work = manifest | {"state": "running"} | provenance.provenance()
    (sums / "manifest.json").write_text(json.dumps(at_work))
    with run_lock(sums):
        before = contents(sums)
        assert call("evaluate", str(sums), monkeypatch=monkeypatch) == 0
        now = contents(sums)
        own = {"evals-running.jsonl", "samples-running.jsonl", ".evals-running.lock"}
        assert now.keys() - before.keys() == own
        assert {name: now[name] for name in before} == before
        assert exact_rows(sums / "evals-running.jsonl") == exact_rows(sums / "evals.jsonl")
        # Another evaluation into the same files waits for its turn; one into others does not.
        capsys.readouterr()
        with try_lock(sums / ".evals-running.lock"):
            assert call("evaluate", str(sums), monkeypatch=monkeypatch) == 2
            assert "eval.label" in capsys.readouterr().err
            few = ("eval.label=few", "eval.prompts=4")
            assert call("evaluate", str(sums), *few, monkeypatch=monkeypatch) == 0
        assert [row["eval/prompts"] for row in read_rows(sums / "evals-few.jsonl")] == [4, 4]
        assert {name: contents(sums)[name] for name in before} == before
        shutil.rmtree(sums / "weights")
        assert call("evaluate", str(sums), monkeypatch=monkeypatch) == 2
        assert str(sums) in capsys.readouterr().err


def test_what_goes_wrong_is_told_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(tmp_path / name) for name in ("one", "two")]
    assert call("evaluate", *names, "-m", "seed=1,2", monkeypatch=monkeypatch) == 2
    assert "sweep over one run at a time" in capsys.readouterr().err
    assert call("evaluate", *names, monkeypatch=monkeypatch) == 2
    assert "2 of 2 runs failed" in capsys.readouterr().err
    for name in names:
        Path(name).mkdir()
        (Path(name) / "manifest.json").write_text(
            json.dumps({"state": "finished", "overrides": ["debug=tiny"]})
        )

    def explode(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(again, "evaluate_again", explode)
    assert call("evaluate", *names, monkeypatch=monkeypatch) == 1
    told = capsys.readouterr().err
    assert "disk full" in told and "Traceback" in told
    assert call("train", "debug=tiny", "eval.label=x", monkeypatch=monkeypatch) == 2
    assert "a run's own evaluation has none" in capsys.readouterr().err


def test_columns_without_numbers_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "version": 3,
        "gold/win_rate": 0.5,
        "gold/win_rate_low": 0.4,
        "gold/win_rate_high": 0.6,
        "gold/mean": 1.25,
        "kl/sft_k1": 2.0,
        "eval/prompts_unjudged": 2,
        "timing/samples_per_second": 12.34,
    }
    show(Console(quiet=False), [Evaluated("a", [row]), Evaluated("b", [])])
    lines = capsys.readouterr().out.splitlines()
    titles = ["run", "version", "win-rate [95%]", "gold", "KL nats", "unjudged", "samples/s"]
    assert [text.strip() for text in lines[1].split("  ") if text.strip()] == titles
    assert lines[2].split() == [
        "a",
        "3",
        "0.500",
        "[0.400,",
        "0.600]",
        "1.250",
        "2.00",
        "2",
        "12.3",
    ]
    assert len(lines) == 3


SWEEP = """
# Is a run of a sweep evaluated as what it is?
defaults:
  - config
  - _self_
  - override task: arithmetic
  - override algo: rloo
  - override reward: task_rule
  - override hydra/hydra_logging: none
  - override hydra/job_logging: none
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      optim.lr: 1e-4,2e-4
output:
  dir: ${output.root}/lr${optim.lr}
"""


def test_a_run_of_a_sweep_is_judged_by_the_config_of_the_sweep(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sweeps"
    folder.mkdir()
    (folder / "ask.yaml").write_text(SWEEP)
    chosen = ("--config-dir", str(folder), "--config-name", "ask")
    where = (
        "debug=tiny",
        "run.updates=1",
        f"output.cache={cache}",
        f"output.root={tmp_path}/runs",
        "eval.split=test",
    )
    assert call("train", "-m", *chosen, *where, monkeypatch=monkeypatch) == 0
    run = tmp_path / "runs" / "lr0.0002"
    assert call("evaluate", str(run), "eval.label=again", monkeypatch=monkeypatch) == 0
    again, first = (read_rows(run / f"samples{label}.jsonl") for label in ("-again", ""))
    assert list(again) == list(first) and again[0]["uid"].startswith("arithmetic/test/")
    assert call("resume", str(run), monkeypatch=monkeypatch) == 0
    assert "has finished already" in capsys.readouterr().out
    assert sorted(path.name for path in run.parent.glob("lr*")) == ["lr0.0001", "lr0.0002"]
