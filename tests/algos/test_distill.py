"""On-policy distillation: its loss by hand and against the exact KL, and a teacher in a run."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from rlhf_lab.algos.distill import Distill, Signal
from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.engine import build_engine, build_teacher
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.batching import collate, rewards_of
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.forward import response_output
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.arithmetic import character_tokenizer
from rlhf_lab.training.ledger import Ledger
from rlhf_lab.types.data import PolicyOutput
from rlhf_lab.types.errors import StopRequested, UserError
from tests.conftest import MakeConfig
from tests.support.examples import credited, group
from tests.support.golden import LENGTHS, POLICY, cells, collated, flat, four_rows, output_of
from tests.support.in_memory import memory_of, result_of, run_in_memory
from tests.support.variants import names

SHORT = ("algo=distill", "eval=none", "eval.snapshots=0", "sft.steps=4", "reward=task_rule")
# REFERENCE less BEHAVIOR of golden.py, row after row: log teacher - log behaviour.
SIGNAL = [-0.5, 0.2, -0.2, -0.5, -0.25, 0.1, 0.5, -0.5, -0.2]
# POLICY less PROXIMAL of golden.py.
LOG_RATIO = [0.35, -0.05, -0.1, 0.35, -0.3, 0.1, -0.05, -0.3, -0.05]


def expected(signals: list[float]) -> float:
    """The mean over the nine tokens of PPO's surrogate with a clip of 0.2."""
    ratios = [math.exp(x) for x in LOG_RATIO]
    pairs = zip(ratios, signals, strict=True)
    return -sum(min(r * a, min(max(r, 0.8), 1.2) * a) for r, a in pairs) / 9


def test_by_hand_with_the_signal_of_the_behaviour() -> None:
    algo = Distill()
    batch = four_rows(algo)
    assert cells(batch.credit_BT) == pytest.approx(SIGNAL, abs=1e-6)
    assert float(output_of(algo, POLICY, batch).loss) == pytest.approx(expected(SIGNAL), abs=1e-6)


def test_by_hand_with_the_signal_of_the_policy() -> None:
    algo = Distill(signal=Signal.policy)
    batch = four_rows(algo)
    assert cells(batch.credit_BT) == [1.0] * sum(LENGTHS)
    # REFERENCE less POLICY.
    own = [-0.9, 0.3, -0.15, -0.9, 0.1, 0.05, 0.45, -0.1, -0.1]
    assert float(output_of(algo, POLICY, batch).loss) == pytest.approx(expected(own), abs=1e-6)
    assert flat(POLICY) != own


def test_rewards_change_nothing() -> None:
    batch, algo = collated(), Distill()
    one = algo.credit(torch.tensor([[1.0, 3.0], [2.0, 0.5]]), batch)
    other = algo.credit(torch.zeros(2, 2), batch)
    assert torch.equal(one.value_BT, other.value_BT) and one.keep_B.all() and other.keep_B.all()


@pytest.mark.parametrize("signal", list(Signal))
def test_its_mean_gradient_on_policy_is_that_of_reverse_kl(signal: Signal) -> None:
    """Over all tokens of a vocabulary of four, each as often as the policy writes it."""
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    teacher = torch.log_softmax(torch.tensor([1.0, 0.2, -0.5, 0.4], dtype=torch.float64), 0)
    logp = torch.log_softmax(logits, 0)
    (exact,) = torch.autograd.grad((logp.exp() * (logp - teacher)).sum(), logits, retain_graph=True)
    algo = Distill(signal=signal)
    groups = [group(0, [[float(x)] for x in logp.detach()], [0.0] * 4)]
    batch = collate(groups, 0)
    batch = replace(batch, reference_logp_BT=teacher.float().unsqueeze(1))
    kept, _ = credited(algo, groups, batch)
    kept = replace(kept, weight_BT=logp.detach().exp().float().unsqueeze(1))
    policy_BT = logp.unsqueeze(1)
    loss = algo.loss(PolicyOutput(policy_BT, torch.zeros_like(policy_BT)), kept).loss
    (found,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(found, exact, atol=1e-6)
    assert exact.abs().max() > 0.05


def test_a_stale_token_is_praised_by_where_the_policy_is_now() -> None:
    """Its writer found it less likely than the teacher does, the policy finds it likelier."""
    groups = [group(0, [[-2.0]], [0.0])]
    batch = replace(collate(groups, 0), reference_logp_BT=torch.tensor([[-1.0]]))
    signs = []
    for signal in Signal:
        algo = Distill(signal=signal, clip=1.0)
        credit = algo.credit(rewards_of(groups), batch)
        part = replace(batch, credit_BT=credit.value_BT, weight_BT=batch.mask_BT)
        logp_BT = torch.tensor([[-0.5]], requires_grad=True)
        # A ratio of one, or the clip would hide the token.
        part = replace(part, proximal_logp_BT=logp_BT.detach())
        loss = algo.loss(PolicyOutput(logp_BT, torch.zeros(1, 1)), part).loss
        signs.append(float(torch.autograd.grad(loss, logp_BT)[0]))
    assert signs == pytest.approx([-1.0, 0.5])


@functools.cache
def shapes() -> tuple[ScratchModel, ScratchModel]:
    return (
        ScratchModel("policy", hidden_size=32, num_layers=1, num_heads=2),
        ScratchModel("teacher", hidden_size=48, num_layers=3, num_heads=4),
    )


@pytest.fixture
def teacher(tmp_path: Path, make_config: MakeConfig) -> Path:
    """A larger model of the task's vocabulary, with random weights of its own."""
    model, tokenizer = load_policy(shapes()[1], make_config().task.tokenizer(), seed=8)
    save_policy(model, tokenizer, tmp_path / "teacher")
    return tmp_path / "teacher"


def policy_and_tokenizer(config: object) -> tuple[torch.nn.Module, PreTrainedTokenizerBase]:
    tokenizer = config.task.tokenizer()  # type: ignore[attr-defined]
    return load_policy(shapes()[0], tokenizer, seed=3)[0], tokenizer


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_engine_reads_a_teacher_of_another_size_as_its_reference(
    make_config: MakeConfig, teacher: Path, dtype: str
) -> None:
    from rlhf_lab.experiment.build.engine import engine_job
    from rlhf_lab.training.engines.distributed import current

    config = make_config("algo=distill", f"algo.teacher={teacher}", f"engine.dtype={dtype}")
    model, tokenizer = policy_and_tokenizer(config)
    plain = build_engine(config, load_policy(shapes()[0], tokenizer, seed=3)[0])
    taught = engine_job(config, model, None, build_teacher(config, tokenizer)).engine(current())
    batch = collate([group(0, [[-1.0, -1.0], [-1.0]], [0.0, 1.0], prompt_len=3)], 0)
    own, _ = load_policy(PretrainedModel("t", str(teacher)), None, seed=0)
    with torch.no_grad():
        expected_BT = response_output(own, batch, config.generator.temperature).logp_BT
    tolerance = 1e-5 if dtype == "float32" else 5e-2
    assert torch.allclose(taught.reference_logp(batch), expected_BT, atol=tolerance)
    assert torch.equal(taught.logp(batch, taught.weights(0)), plain.logp(batch, plain.weights(0)))
    assert not torch.allclose(plain.reference_logp(batch), expected_BT, atol=0.05)
    assert set(taught.weights(0).state) == set(plain.weights(0).state)


def another_sft(make_config: MakeConfig) -> str:
    """A policy that learned longer than the one that is taught."""
    config = make_config("sft.steps=120", "stage_seed=7")
    return Artifacts(config, Console(quiet=True)).sources().policy.path


@pytest.mark.parametrize("signal", names(Signal, [Signal.policy]))
def test_a_run_comes_nearer_to_its_teacher(make_config: MakeConfig, signal: Signal) -> None:
    config = make_config(
        *(*SHORT, "run.updates=32", "run.groups_per_update=16", "optim.lr=2e-3"),
        f"algo.teacher={another_sft(make_config)}",
        f"algo.signal={signal.value}",
    )
    rows, _ = result_of(config)
    distance = [row["kl/sampled_reference_k1"] / row["sample/length"] for row in rows]
    # Of seeds 1, 2 and 3 it is 0.53, 0.65 and 0.82.
    assert sum(distance[-4:]) < 0.9 * sum(distance[:4])
    assert min(distance[:4]) > 0.05


def test_a_teacher_changes_the_run(make_config: MakeConfig) -> None:
    taught = (*SHORT, f"algo.teacher={another_sft(make_config)}", "mode.max_staleness=2")

    def run(*options: str) -> tuple[object, str]:
        return result_of(make_config(*taught, *options))

    alone = result_of(make_config(*SHORT, "mode=lagged", "mode.max_staleness=2"))
    assert alone[1] != run("mode=lagged")[1]


def test_a_stopped_run_goes_on_with_its_teacher(make_config: MakeConfig) -> None:
    named = f"algo.teacher={another_sft(make_config)}"
    config = make_config(*SHORT, named, "checkpoint=rounds", "algo.signal=policy")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 1)
    assert run_in_memory(config, output) == run_in_memory(config)


def test_a_teacher_counts_with_its_own_size() -> None:
    same, larger = (Ledger(1, 0, 10, reference_parameters=size) for size in (0, 30))
    for ledger in (same, larger):
        ledger.count(reference_tokens=7, trained_tokens=2)
    assert same.flops() == 2 * 7 * 10 + 6 * 2 * 10
    assert larger.flops() == 2 * 7 * 30 + 6 * 2 * 10


def test_a_teacher_of_another_vocabulary_or_context_is_refused(
    make_config: MakeConfig, teacher: Path, tmp_path: Path
) -> None:
    config = make_config("algo=distill", f"algo.teacher={teacher}")
    with pytest.raises(UserError, match=r"algo\.teacher=.*its vocabulary is not that of model="):
        build_teacher(config, character_tokenizer())
    short = ScratchModel("short", hidden_size=16, num_layers=1, num_heads=2, max_positions=16)
    model, tokenizer = load_policy(short, config.task.tokenizer(), seed=1)
    save_policy(model, tokenizer, tmp_path / "short")
    config = make_config("algo=distill", f"algo.teacher={tmp_path / 'short'}")
    with pytest.raises(UserError, match=r"its context of 16 tokens is shorter than prompts"):
        build_teacher(config, tokenizer)
    # Of an episode, it reads the observations too.
    config = make_config("algo=distill", "task=ask_nano")
    task = config.task
    without = task.max_prompt_tokens + task.max_response_tokens
    model, tokenizer = load_policy(replace(short, max_positions=without), task.tokenizer(), seed=1)
    save_policy(model, tokenizer, tmp_path / "turns")
    config = make_config("algo=distill", "task=ask_nano", f"algo.teacher={tmp_path / 'turns'}")
    with pytest.raises(UserError, match=rf"its context of {without} tokens is shorter than"):
        build_teacher(config, tokenizer)
    config = make_config("algo=distill", f"algo.teacher={tmp_path / 'nothing'}")
    with pytest.raises(UserError, match=r"algo\.teacher"):
        build_teacher(config, tokenizer)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), r"algo\.teacher='' with algo=distill: .*pass algo\.teacher="),
        (("algo.teacher=x", "engine=fsdp"), r"engine=fsdp with algo=distill: .*engine=single"),
        (("algo.teacher=x", "generator=pairs"), "generator=pairs with algo=distill: .*unknown"),
        (
            ("algo.teacher=x", "run.offline_share=0.25", "run.groups_per_update=16"),
            "run.offline_share with algo=distill: .*unknown",
        ),
        (("algo.teacher=x", "run.return_scaling=percentile"), "already free of the scale"),
        *(
            (
                ("algo.teacher=x", "algo.signal=policy", f"correction={name}"),
                f"correction={name} with algo=distill .*algo.signal=policy: .*correction=icepop",
            )
            for name in ("opsm", "dppo")
        ),
        *(
            (
                ("algo.teacher=x", "algo.kl=forward", f"correction={name}"),
                f"correction={name} with algo=distill algo.kl=forward .*correction=none",
            )
            for name in ("opsm", "dppo")
        ),
        (
            ("algo.teacher=x", "algo.top_k=8"),
            r"algo\.top_k=8 with .*algo.kl=sampled: .*algo.kl=for",
        ),
        (
            ("algo.teacher=x", "algo.kl=reverse", "algo.signal=policy"),
            r"algo\.signal=policy with algo=distill algo.kl=reverse: .*algo.kl=sampled",
        ),
        (
            ("algo.teacher=x", "algo.kl=forward", "correction=recompute"),
            "correction=recompute with algo=distill: .*pass correction=",
        ),
    ],
)
def test_what_a_teacher_cannot_do_is_refused(
    config_of: MakeConfig, options: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        check(config_of("algo=distill", *options), here=False)
