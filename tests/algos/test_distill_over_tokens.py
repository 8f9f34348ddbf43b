"""Distillation by a KL over several tokens: by hand, in every layout of a pass, and in runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.algos.distill import Direction, Distill, kl_over_tokens
from rlhf_lab.experiment.build.engine import build_teacher, engine_job, require_same_logits
from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import TokenRows, response_output, top_columns
from rlhf_lab.training.engines.distributed import current
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.types.data import Batch, PolicyOutput, UpdateResult
from rlhf_lab.types.errors import StopRequested, UserError
from tests.algos.test_distill import SHORT, another_sft, policy_and_tokenizer
from tests.conftest import MakeConfig
from tests.support.attention_cases import model, uneven
from tests.support.examples import credited, group
from tests.support.in_memory import memory_of, result_of, run_in_memory
from tests.support.variants import names, slow

OVER_TOKENS = (Direction.reverse, Direction.forward)
TEACHER = [0.4, 0.3, 0.2, 0.1]
# Of a policy that finds the four tokens equally likely.
FORWARD = sum(q * math.log(4 * q) for q in TEACHER)
REVERSE = sum(-0.25 * math.log(4 * q) for q in TEACHER)


def row_of(logits_V: Tensor, top_k: int) -> PolicyOutput:
    """A pass over one row of one token, whose teacher is TEACHER."""
    teacher_BTV = torch.tensor(TEACHER, dtype=logits_V.dtype).log().view(1, 1, 4)
    own_BTV = torch.log_softmax(logits_V, 0).view(1, 1, 4)
    top_BTK, teacher_BTK = top_columns(teacher_BTV, top_k)
    none_BT = torch.zeros(1, 1)
    return PolicyOutput(
        *(none_BT, none_BT),
        top_logp_BTK=top_columns(own_BTV, top_BTK)[1],
        reference_top_logp_BTK=teacher_BTK,
    )


@pytest.mark.parametrize(
    ("direction", "top_k", "expected"),
    [
        (Direction.forward, 0, FORWARD),
        (Direction.reverse, 0, REVERSE),
        (Direction.forward, 2, 0.4 * math.log(1.6) + 0.3 * math.log(1.2)),
        (Direction.reverse, 2, 0.25 * (math.log(1 / 1.6) + math.log(1 / 1.2))),
        (Direction.forward, 1, 0.4 * math.log(1.6)),
    ],
)
def test_by_hand(direction: Direction, top_k: int, expected: float) -> None:
    kl_BT = kl_over_tokens(row_of(torch.zeros(4), top_k), direction)
    assert kl_BT.tolist() == [[pytest.approx(expected, abs=1e-6)]]


def test_over_all_tokens_it_is_the_kl_of_torch() -> None:
    logits = torch.tensor([0.3, -1.0, 0.8, 0.1])
    own, teacher = torch.log_softmax(logits, 0), torch.tensor(TEACHER).log()
    kl = torch.nn.functional.kl_div
    for direction, exact in (
        (Direction.forward, kl(own, teacher, log_target=True, reduction="sum")),
        (Direction.reverse, kl(teacher, own, log_target=True, reduction="sum")),
    ):
        assert torch.allclose(kl_over_tokens(row_of(logits, 0), direction).sum(), exact, atol=1e-6)


def test_gradients_by_hand() -> None:
    """forward: p - q, which knows no sample; reverse: p (log p / q - KL)."""
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    q = torch.tensor(TEACHER, dtype=torch.float64)
    for direction, expected in (
        (Direction.forward, 0.25 - q),
        (Direction.reverse, 0.25 * ((0.25 / q).log() - REVERSE)),
    ):
        (found,) = torch.autograd.grad(kl_over_tokens(row_of(logits, 0), direction).sum(), logits)
        assert torch.allclose(found, expected, atol=1e-9)


def test_no_token_that_was_sampled_matters() -> None:
    """Nor who wrote it: only the correction's factor of the credit weighs the KL of a token."""
    algo = Distill(kl=Direction.forward)
    groups = [group(0, [[-2.0]], [3.0])]
    batch = replace(collate(groups, 0), reference_logp_BT=torch.tensor([[-1.0]]))
    kept, keep_B = credited(algo, groups, batch)
    assert keep_B.all() and kept.credit_BT.tolist() == [[1.0]]
    policy = row_of(torch.zeros(4), 0)
    assert float(algo.loss(policy, kept).loss) == pytest.approx(FORWARD, abs=1e-6)
    halved = replace(kept, credit_BT=kept.credit_BT / 2)
    assert float(algo.loss(policy, halved).loss) == pytest.approx(FORWARD / 2, abs=1e-6)


def test_without_the_teachers_tokens_it_refuses() -> None:
    none_BT = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="the engine has none"):
        kl_over_tokens(PolicyOutput(none_BT, none_BT), Direction.forward)


@pytest.mark.parametrize("asked", [0, 3, "given"])
@pytest.mark.parametrize(("chunks", "is_packed"), [(1, False), (3, False), (1, True), (3, True)])
def test_every_layout_reads_the_same_tokens(asked: int | str, chunks: int, is_packed: bool) -> None:
    rows = uneven()
    given_BTK = torch.arange(2).expand(*rows.mask_BT.shape, 2)
    rows = rows._replace(top=asked if isinstance(asked, int) else given_BTK)
    networks = PolicyWithValues(model("llama"), None, 0.7, shares_prompts=True)
    assert networks.is_packable
    output = PolicyOutput(*networks(rows, PassKind.policy, PassLayout(chunks, is_packed)))
    plain = response_output(networks.policy, rows, 0.7)
    assert output.top_BTK is not None and output.top_logp_BTK is not None
    assert plain.top_BTK is not None and plain.top_logp_BTK is not None
    is_real = rows.mask_BT > 0
    assert torch.equal(output.top_BTK[is_real], plain.top_BTK[is_real])
    assert torch.allclose(output.top_logp_BTK, plain.top_logp_BTK, atol=1e-5)
    assert not output.top_logp_BTK[~is_real].any()
    if asked == 0:
        total_BT = plain.top_logp_BTK.exp().sum(dim=2)
        assert torch.allclose(total_BT[is_real], rows.mask_BT[is_real])
    if asked == 3:
        assert bool((plain.top_logp_BTK.diff(dim=2) <= 0).all())
        assert bool((plain.top_logp_BTK[:, :, 0] >= plain.logp_BT - 1e-6).all())


def test_a_pass_of_a_batch_asks_for_no_other_tokens() -> None:
    rows: TokenRows = uneven()
    output = response_output(model("llama"), rows, 1.0)
    assert output.top_BTK is None and output.top_logp_BTK is None


def batch_of_four() -> Batch:
    groups = [
        group(0, [[-1.0, -1.0], [-1.0]], [0.0, 1.0], prompt_len=3),
        group(1, [[-0.5], [-1.0, -2.0, -0.5]], [0.0, 1.0]),
    ]
    return credited(Distill(), groups, collate(groups, 0))[0]


@pytest.mark.parametrize("direction", OVER_TOKENS)
@pytest.mark.parametrize("top_k", [0, 3])
def test_micro_batches_and_chunks_sum_to_the_update(
    make_config: MakeConfig, tmp_path: Path, direction: Direction, top_k: int
) -> None:
    teacher = another_sft(make_config)
    algo = Distill(teacher=teacher, kl=direction, top_k=top_k)
    batch = replace(batch_of_four(), credit_BT=batch_of_four().mask_BT)

    def updated(*options: str) -> tuple[UpdateResult, Tensor]:
        config = make_config("algo=distill", f"algo.teacher={teacher}", *options)
        policy, tokenizer = policy_and_tokenizer(config)
        engine = engine_job(config, policy, None, build_teacher(config, tokenizer)).engine(
            current()
        )
        result = engine.update(batch, algo, NoCorrection(), 0.1)
        return result, torch.cat([w.flatten() for w in engine.weights(1).state.values()])

    whole, weights = updated("engine.micro_rows=64", "engine.logit_tokens=0")
    for options in (["engine.micro_rows=2"], ["engine.micro_rows=64", "engine.logit_tokens=1"]):
        parts, same = updated(*options)
        assert parts.metrics["loss"] == pytest.approx(whole.metrics["loss"], abs=1e-5)
        assert parts.metrics["grad_norm"] == pytest.approx(whole.metrics["grad_norm"], rel=1e-4)
        assert torch.allclose(same, weights, atol=2e-2)
    if not top_k:
        assert whole.metrics["loss"] > 0


@pytest.mark.parametrize("options", [("algo.kl=forward",), slow("algo.kl=reverse", "algo.top_k=4")])
def test_old_samples_decide_and_a_stopped_run_goes_on(
    make_config: MakeConfig, options: tuple[str, ...]
) -> None:
    named = (*SHORT, f"algo.teacher={another_sft(make_config)}", *options)

    def run(*more: str) -> tuple[object, str]:
        return result_of(make_config(*named, *more))

    lagged = run("mode=lagged", "mode.max_staleness=2")
    assert run("mode=sync")[1] != lagged[1]
    config = make_config(*named, "mode=lagged", "mode.max_staleness=2", "checkpoint=rounds")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 1)
    assert run_in_memory(config, output) == lagged


@pytest.mark.parametrize("direction", names(OVER_TOKENS, OVER_TOKENS[:1]))
def test_a_run_comes_nearer_to_its_teacher(make_config: MakeConfig, direction: Direction) -> None:
    named = f"algo.teacher={another_sft(make_config)}"
    config = make_config(
        *(*SHORT, "run.updates=24", "run.groups_per_update=8", "optim.lr=2e-3"),
        *(named, f"algo.kl={direction}"),
    )
    rows, _ = result_of(config)
    distance = [row["kl/sampled_reference_k1"] / row["sample/length"] for row in rows]
    assert sum(distance[-4:]) < 0.6 * sum(distance[:4])
    assert all(row["update/loss"] > 0 for row in rows)


def test_a_teachers_tokens_are_counted_at_each_update(make_config: MakeConfig) -> None:
    named = (*SHORT, f"algo.teacher={another_sft(make_config)}")
    once, twice = (
        result_of(make_config(*named, f"algo.kl={kl}"))[0] for kl in ("sampled", "forward")
    )
    assert once[0]["total/reference_tokens"] == once[0]["total/trained_tokens"]
    assert twice[0]["total/reference_tokens"] == 2 * twice[0]["total/trained_tokens"]


def test_more_tokens_than_the_vocabulary_has_are_refused(make_config: MakeConfig) -> None:
    config = make_config(
        *("algo=distill", f"algo.teacher={another_sft(make_config)}"),
        *("algo.kl=forward", "algo.top_k=100000"),
    )
    with pytest.raises(UserError, match=r"algo\.top_k=100000: the vocabulary of .* has \d+ tokens"):
        build_teacher(config, config.task.tokenizer())


def test_a_teacher_with_other_logits_is_refused(make_config: MakeConfig) -> None:
    config = make_config("algo=distill", f"algo.teacher={another_sft(make_config)}")
    policy, tokenizer = policy_and_tokenizer(config)
    teacher = build_teacher(config, tokenizer)
    assert teacher is not None
    teacher.config.vocab_size += 24
    require_same_logits(config, policy, teacher)
    config = replace(config, algo=replace(config.algo, kl=Direction.forward))
    with pytest.raises(UserError, match=r"algo\.teacher=.* logits and .*pass algo.kl=sampled"):
        require_same_logits(config, policy, teacher)
    require_same_logits(config, policy, None)
