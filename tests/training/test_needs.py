"""What an algorithm may ask of a run: values, greedy baselines, more groups, another reference."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from rlhf_lab.algos.ppo import PPO
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.engine import build_engine, build_value_model
from rlhf_lab.experiment.build.evaluator import build_generator
from rlhf_lab.experiment.build.prompts import build_prompts
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.algorithm import check_value_rounds
from rlhf_lab.experiment.rules.checks import warnings
from rlhf_lab.models.batching import collate
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.forward import response_values
from rlhf_lab.models.heads import value_model_from, value_model_like
from rlhf_lab.models.reward_model import load_reward_model
from rlhf_lab.rewards.model import last_token_scores
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.training.batch_builder import informative_first
from rlhf_lab.training.engines.engine import TrainingEngine
from rlhf_lab.types.data import Batch, Weights
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Sample, Split
from rlhf_lab.types.text_frame import TextFrame
from tests.conftest import MakeConfig
from tests.support.examples import group
from tests.support.in_memory import memory_of, result_of, run_in_memory
from tests.support.variants import slow

SHORT = ("run.updates=5", "eval=none", "eval.snapshots=0", "sft.steps=4")
Row = dict[str, Any]


def rows_of(config: Config) -> list[Row]:
    return result_of(config)[0]


def engine_of(config: Config) -> tuple[TrainingEngine, Batch]:
    """The engine of a run, and a batch of samples of its first policy."""
    sources = Artifacts(config, Console(quiet=True)).sources()
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    values = build_value_model(config, sources, model, tokenizer)
    return build_engine(config, model, values), sampled(config, model, tokenizer, greedy=False)


def sampled(config: Config, model: Any, tokenizer: Any, greedy: bool, seed: str = "test") -> Batch:
    weights = Weights(0, dict(model.named_parameters()))
    stream = build_prompts(config, tokenizer, Split.train, "test")
    chunk = Chunk(0, 0, tuple(stream[place] for place in range(4)), 3, greedy)
    groups = build_generator(config, model, tokenizer, seed).generate(weights, chunk)
    return collate(groups, TextFrame(tokenizer).pad, limit=16)


def test_values_begin_as_the_scores_of_the_proxy(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, "algo=ppo")
    sources = Artifacts(config, Console(quiet=True)).sources()
    engine, batch = engine_of(config)
    model, _, offset = load_reward_model(sources.proxies[0])
    values_BT = engine.values(batch)
    for row in range(3):
        prompt = batch.prompt_BS[row][batch.prompt_mask_BS[row] > 0].tolist()
        length = int(batch.mask_BT[row].sum())
        response = batch.response_BT[row, :length].tolist()
        # The value of the state before token t reads the prompt and the t tokens before it.
        seen = [[*prompt, *response[:t]] for t in range(length)]
        scores = last_token_scores(model, seen) - offset
        assert torch.allclose(values_BT[row, :length], scores, atol=1e-4)
        assert not values_BT[row, length:].any()


def test_ratios_to_unknown_writers_are_warned_about(make_config: MakeConfig) -> None:
    pairs = ["generator=pairs", "generator.path=pairs.jsonl", "run.group_size=2"]
    (told,) = warnings(make_config("algo=proximal_rloo", *pairs))
    assert "its ratios need the log-probs of the policy that wrote the answers" in told
    assert not warnings(make_config("algo=proximal_rloo", "generator=pairs", "run.group_size=2"))
    assert not warnings(make_config("algo=dpo", *pairs))
    # A correction takes ratios to the writers where the loss has none.
    assert not warnings(make_config("algo=reinforce", *pairs))
    (told,) = warnings(make_config("algo=reinforce", "correction=truncated_is", *pairs))
    assert told.startswith("correction=truncated_is with algo=reinforce on generator.path=")


def test_values_that_begin_at_zero_are_warned_about(make_config: MakeConfig) -> None:
    for options in (["algo.shared_trunk=true"], ["reward=task_rule"]):
        (told,) = warnings(make_config("algo=ppo", *options))
        assert told.startswith("algo.lam=0.95 with values that begin at zero")
        assert not warnings(make_config("algo=ppo", *options, "algo.lam=1"))
    assert not warnings(make_config("algo=ppo"))
    assert not warnings(make_config("algo=grpo", "reward=task_rule"))


@pytest.mark.parametrize("options", [("algo.shared_trunk=true",), ("reward=task_rule",)])
def test_without_a_proxy_values_begin_at_zero_and_learn(
    make_config: MakeConfig, options: tuple[str, ...]
) -> None:
    config = make_config(*SHORT, "algo=ppo", *options)
    engine, batch = engine_of(config)
    assert not engine.values(batch).any()
    algo = PPO(value_coef=1.0, shared_trunk="algo.shared_trunk=true" in options)
    target_BT = torch.ones_like(batch.mask_BT) * batch.mask_BT
    weight_BT = batch.mask_BT / batch.mask_BT.sum()
    part = Batch(**{**vars(batch), "target_BT": target_BT, "weight_BT": weight_BT})
    for _ in range(20):
        error = engine.update(part, algo, config.correction, 3e-3).metrics["ppo/value_error"]
    assert error < 0.4, "half the squared error was 0.5 at zero"


BINS = ("algo=ppo", "algo.value_bins=21", "algo.value_clip=0", "algo.value_min=-2")


@pytest.mark.parametrize(
    "options",
    [(), ("algo.shared_trunk=true",), ("reward=task_rule",), ("engine.logit_tokens=8",)],
)
def test_values_in_bins_begin_in_the_middle_and_learn(
    make_config: MakeConfig, options: tuple[str, ...]
) -> None:
    config = make_config(*SHORT, *BINS, "algo.value_max=4", *options)
    engine, batch = engine_of(config)
    begun_BT = engine.values(batch)
    assert torch.allclose(begun_BT, batch.mask_BT, atol=1e-5), "half way from -2 to 4"
    algo = replace(config.algo, value_coef=1.0)
    part = replace(
        batch, target_BT=2.5 * batch.mask_BT, weight_BT=batch.mask_BT / batch.mask_BT.sum()
    )
    errors = [
        engine.update(part, algo, config.correction, 3e-3).metrics["ppo/value_error"]
        for _ in range(20)
    ]
    assert errors[0] == pytest.approx(math.log(21), abs=1e-4), "all bins are alike at first"
    assert errors[-1] < 2.5
    away = (engine.values(batch) - part.target_BT).abs().sum() / batch.mask_BT.sum()
    assert away < 0.75, "it was 1.5 at first"


def test_values_in_bins_are_warned_about_as_those_that_begin_at_zero(
    make_config: MakeConfig,
) -> None:
    (told,) = warnings(make_config(*BINS))
    assert told.startswith("algo.lam=0.95 with values that begin at zero")


def test_a_value_network_of_its_own_leaves_the_policy_alone() -> None:
    """And a head on the policy's trunk does not."""
    from rlhf_lab.models.options import ScratchModel
    from rlhf_lab.tasks.tldr_nano import TldrNano

    tiny = ScratchModel("tiny", hidden_size=32, num_layers=2, num_heads=4)
    policy, _ = load_policy(tiny, TldrNano().tokenizer(), seed=3)
    own, shared = value_model_like(policy, False), value_model_like(policy, True)
    ids = {id(parameter) for parameter in policy.parameters()}
    assert not ids & {id(parameter) for parameter in own.parameters()}
    assert [name for name, _ in shared.named_parameters()] == ["score.weight"]


def test_values_come_from_a_reward_model_without_changing_it(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, "algo=ppo")
    sources = Artifacts(config, Console(quiet=True)).sources()
    model, _, offset = load_reward_model(sources.proxies[0])
    values = value_model_from(model, offset)
    _, batch = engine_of(config)
    assert all(parameter.requires_grad for parameter in values.parameters())
    assert response_values(values, batch).value_BT.shape == batch.mask_BT.shape


def test_values_are_learned_before_the_policy_and_frozen_after(make_config: MakeConfig) -> None:
    options = ("algo=a_lol", "algo.value_baseline=true", "algo.value_rounds=3", "optim.lr=1e-3")
    config = make_config(*SHORT, *options)
    engine, batch = engine_of(config)
    algo: Any = config.algo
    credited = batch.mask_BT / batch.mask_BT.sum()
    target_BT = torch.zeros_like(batch.mask_BT)
    target_BT[:, 0] = 1.0
    added = {"target_BT": target_BT, "weight_BT": credited, "credit_BT": batch.mask_BT}
    part = Batch(**(vars(batch) | added))
    seen = []
    for round_ in range(6):
        seen.append((engine.weights(round_).state, engine.values(batch)))
        engine.update(part, algo.at_round(round_, 8), config.correction, 1e-3)
    policies = [all(torch.equal(a[0][n], b[0][n]) for n in a[0]) for a, b in pairwise(seen)]
    assert policies == [True, True, True, False, False]
    values = [torch.equal(a[1], b[1]) for a, b in pairwise(seen)]
    assert values == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("algo.value_rounds=5",), "run has 5 rounds"),
        (("algo.value_rounds=2", "engine=fsdp"), "pass engine=single"),
        (("algo.value_rounds=2", "optim.weight_decay=0.1"), "pass optim.weight_decay=0"),
    ],
)
def test_values_that_cannot_be_learned_first_are_refused(
    make_config: MakeConfig, options: tuple[str, ...], remedy: str
) -> None:
    with pytest.raises(UserError, match=remedy):
        check_value_rounds(make_config(*SHORT, "algo=a_lol", "algo.value_baseline=true", *options))


@pytest.mark.parametrize(
    "options",
    [
        ("algo=ppo", "algo.kl_target=0.01", "algo.kl_horizon=100"),
        ("algo=ppo", "algo.shared_trunk=true", "algo.reference_decay=0.5"),
        ("algo=online_dpo", "algo.refresh_every=3"),
        slow("algo=dapo", "mode=lagged"),
        slow("algo=mdpo", "algo.symlog_values=true"),
        ("algo=ppo", "algo.value_bins=11", "algo.value_clip=0"),
        slow("algo=a_lol", "algo.value_baseline=true", "run.group_size=1"),
        ("algo=a_lol", "algo.value_baseline=true", "run.group_size=1", "algo.value_rounds=3"),
        ("algo=rloo", "run.return_scaling=percentile", "run.return_decay=0.5"),
        slow("algo=ma_ppo", "algo.termination=random", "algo.macro_value=equal"),
        slow("algo=ma_ppo", "mode=lagged", "correction=sequence_is"),
    ],
    ids=" ".join,
)
def test_a_run_that_was_stopped_goes_on_with_the_same_bits(
    make_config: MakeConfig, options: tuple[str, ...]
) -> None:
    """Values, a moved reference, and an adapted coefficient are part of a checkpoint."""
    config = make_config(*SHORT, *options, "checkpoint.rounds=1")
    whole = run_in_memory(config)
    output, decisions = memory_of(config), iter(range(100))
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: next(decisions) >= 3)
    assert 0 < len(output.rows) < 5
    assert run_in_memory(config, output) == whole


def test_the_coefficient_follows_its_target(make_config: MakeConfig) -> None:
    steered = ("algo=ppo", "algo.kl_horizon=100", "optim.lr=1e-3")
    high = rows_of(make_config(*SHORT, *steered, "algo.kl_target=1000"))
    low = rows_of(make_config(*SHORT, *steered, "algo.kl_target=1e-6"))
    fixed = rows_of(make_config(*SHORT, *steered))
    assert [row["algo/kl_coef"] for row in fixed] == [0.05] * 5
    # Below the target the error is cut at -0.2: 8 samples of 100 each round.
    falling = [0.05 * (1 - 0.2 * 8 / 100) ** round_ for round_ in range(5)]
    assert [row["algo/kl_coef"] for row in high] == pytest.approx(falling)
    assert low[-1]["algo/kl_coef"] > 0.05


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("algo=grpo",), True),
        (("algo=grpo", "algo.kl_coef=0"), False),
        (("algo=online_dpo",), True),
        (("algo=rloo", "algo.kl_coef=0"), False),
        (("algo=rloo", "algo.kl_coef=0.05"), True),
        (("algo=dapo",), False),
        (("algo=ppo", "algo.kl_target=6"), True),
        (("algo=reinforce", "algo.kl_coef=0"), False),
        (("algo=copg",), True),
    ],
)
def test_an_algorithm_declares_the_reference_where_it_reads_it(
    make_config: MakeConfig, options: tuple[str, ...], expected: bool
) -> None:
    assert make_config(*options).algo.needs.reference is expected


def test_a_reference_that_only_metrics_ask_is_read_for_some_groups(make_config: MakeConfig) -> None:
    plain = ("algo=grpo", "algo.kl_coef=0", "run.group_size=2", "optim.lr=1e-3")
    whole = result_of(make_config(*SHORT, *plain))
    some = make_config(*SHORT, *plain, "tracker.reference_groups=1")
    rows, *rest = result_of(some)
    assert rest == list(whole[1:]), "the same weights"
    for row, full in zip(rows, whole[0], strict=True):
        assert row["reward/mean"] == full["reward/mean"]
        assert 0 < row["total/reference_tokens"] < full["total/reference_tokens"]
    assert rows[-1]["kl/sampled_reference_k1"] != 0
    # Where the loss asks, everything is read.
    asking = ("algo=grpo", "run.group_size=2")
    assert rows_of(make_config(*SHORT, *asking, "tracker.reference_groups=1")) == rows_of(
        make_config(*SHORT, *asking)
    )


def test_the_reference_moves_when_it_is_asked_to(make_config: MakeConfig) -> None:
    often = ("algo=online_dpo", "optim.lr=1e-3")
    fixed = rows_of(make_config(*SHORT, *often))
    moved = rows_of(make_config(*SHORT, *often, "algo.refresh_every=1"))
    assert fixed[-1]["kl/policy_reference_k3"] > 1e-4
    # Each round's one update begins at a reference that is the policy itself.
    assert all(row["kl/policy_reference_k3"] < 1e-9 for row in moved)
    averaged = rows_of(make_config(*SHORT, "algo=ppo", "optim.lr=1e-3", "algo.reference_decay=0.9"))
    still = rows_of(make_config(*SHORT, "algo=ppo", "optim.lr=1e-3"))
    assert 0 < averaged[-1]["kl/policy_reference_k3"] < still[-1]["kl/policy_reference_k3"]


def test_the_last_sample_of_a_group_is_greedy_and_the_others_are_as_before(
    make_config: MakeConfig,
) -> None:
    config = make_config(*SHORT)
    sources = Artifacts(config, Console(quiet=True)).sources()
    model, tokenizer = load_policy(sources.policy, None, config.seed)
    plain = sampled(config, model, tokenizer, greedy=False)
    greedy = sampled(config, model, tokenizer, greedy=True)
    other = sampled(config, model, tokenizer, greedy=True, seed="other")
    drawn = torch.arange(12) % 3 != 2
    width = min(plain.mask_BT.shape[1], greedy.mask_BT.shape[1], other.mask_BT.shape[1])
    cut = [batch.response_BT[:, :width] for batch in (plain, greedy, other)]
    assert torch.equal(cut[0][drawn], cut[1][drawn])
    assert torch.equal(cut[1][~drawn], cut[2][~drawn]), "whatever the randomness"
    assert not torch.equal(cut[1][drawn], cut[2][drawn])


def test_more_groups_are_generated_and_those_that_say_something_are_trained_on(
    make_config: MakeConfig,
) -> None:
    rows = rows_of(make_config(*SHORT, "algo=dapo", "algo.oversample=2", "reward=task_rule"))
    for round_, row in enumerate(rows, start=1):
        assert row["sample/groups_left_out"] == 4
        assert row["total/prompts"] == 8 * round_
        counts = {end: row[f"total/{end}_tokens"] for end in ("kept", "tied", "left_out")}
        assert sum(counts.values()) == row["total/generated_tokens"]
        assert row["rows_kept"] == 1.0, "of eight groups four differ in reward"
    plain = rows_of(make_config(*SHORT, "algo=grpo"))
    assert all(row["sample/groups_left_out"] == 0 for row in plain)


def test_informative_groups_come_first_and_stay_in_order() -> None:
    ties = [True, False, True, False, False]
    groups = [group(n, [[-1.0]] * 2, [2.0, 2.0 if tied else 3.0]) for n, tied in enumerate(ties)]
    chosen = {count: [g.prompt.id for g in informative_first(groups, count)] for count in range(6)}
    assert chosen[2] == [1, 3]
    assert chosen[3] == [1, 3, 4]
    assert chosen[4] == [0, 1, 3, 4]
    assert chosen[5] == [0, 1, 2, 3, 4]


def test_oversampling_is_what_the_algorithm_asks_unless_the_user_says(
    make_config: MakeConfig,
) -> None:
    assert make_config("run.oversample=2").run.groups_generated == 8
    assert make_config().run.groups_generated == 4
    assert make_config("algo=dapo").run.oversample == 1.5
    assert make_config("algo=dapo", "run.oversample=1").run.oversample == 1.0
    with pytest.raises(UserError, match=r"run.oversample=0.5 .* choose 1 to 100"):
        make_config("run.oversample=0.5")


@pytest.mark.parametrize("algo", ["grpo", "ppo"])
def test_reference_log_probs_and_values_are_computed_once_per_sample(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, algo: str
) -> None:
    read: dict[str, list[Sample]] = {"reference_logp": [], "values": []}
    for name, seen in read.items():
        true = getattr(TrainingEngine, name)

        def counted(self: Any, batch: Batch, true: Any = true, seen: Any = seen) -> Any:
            seen.extend(batch.response_BT.tolist())
            return true(self, batch)

        monkeypatch.setattr(TrainingEngine, name, counted)
    again = ("run.passes=2", "run.updates_per_round=2", "run.updates=8")
    rows = run_in_memory(make_config(*SHORT, *again, f"algo={algo}"))[0]
    samples = rows[-1]["total/completions"]
    assert len(read["reference_logp"]) == samples
    assert len(read["values"]) == (samples if algo == "ppo" else 0)
    assert rows[-1]["total/updates"] == 8


def test_recomputed_ratios_do_not_see_staleness_and_are_warned_about(
    make_config: MakeConfig,
) -> None:
    stale = ("mode=lagged", "mode.max_staleness=2", "optim.lr=3e-3", "algo=grpo", *SHORT)
    seen = rows_of(make_config(*stale))
    config = make_config(*stale, "correction=recompute")
    output = memory_of(config)
    hidden = run_in_memory(config, output)[0]
    assert output.reports[0].startswith("warning: correction=recompute takes ratios against")
    assert seen[-1]["ratio/clipped"] > 0
    assert all(row["ratio/clipped"] == 0 for row in hidden), "N = T = 1: the ratio is one"
    assert hidden[-1]["kl/behavior_policy_k3"] > 1e-4, "and yet the samples are stale"
    weighed = rows_of(make_config(*stale, "correction=decoupled"))
    assert weighed[-1]["correction/weight"] != 1.0
    assert weighed[-1]["total/reread_tokens"] == weighed[-1]["total/reference_tokens"]


def test_the_step_shrinks_with_the_effective_sample_size(make_config: MakeConfig) -> None:
    stale = ("mode=lagged", "mode.max_staleness=2", "optim.lr=3e-3", "algo=online_dpo", *SHORT)
    plain = rows_of(make_config(*stale))
    scaled = rows_of(make_config(*stale, "correction=ess_scaled"))
    assert scaled[0]["update/learning_rate"] == pytest.approx(
        plain[0]["update/learning_rate"] * scaled[0]["ratio/ess_sequences"] ** 0.5, rel=1e-4
    )
    last = scaled[-1]
    assert last["update/learning_rate"] < 0.99 * plain[-1]["update/learning_rate"]
    assert last["update/learning_rate"] == pytest.approx(
        plain[-1]["update/learning_rate"] * last["ratio/ess_sequences"] ** 0.5, rel=1e-4
    )


def test_constrained_algorithms_warn_of_rewards_that_show_no_violation(
    make_config: MakeConfig,
) -> None:
    for algo in ("crpg", "crraft", "codpo"):
        (found,) = warnings(make_config(f"algo={algo}"))
        assert f"algo={algo} with reward=reward_model" in found and "reward=cgpo" in found
        assert not warnings(make_config(f"algo={algo}", "reward=cgpo"))


def test_the_mixture_of_judges_trains_with_its_optimizers(make_config: MakeConfig) -> None:
    for algo in ("crpg", "crraft", "codpo"):
        given = ("reward=cgpo", "sft.steps=4", "run.updates=2", "eval=none", "eval.snapshots=0")
        rows = result_of(make_config(f"algo={algo}", "run.group_size=4", *given))[0]
        assert len(rows) == 2
        # calibrated between 0 and 1, 0 where a constraint is violated
        assert all(0 <= row["reward/mean"] <= row["reward/best"] <= 1 for row in rows)
