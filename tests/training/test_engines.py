"""The engine in one process: parts of an update, chunks of logits, states, shortages of memory."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.algos.corrections.masks import M2PO
from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.experiment.rules import checks
from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import num_chunks, response_output
from rlhf_lab.models.heads import value_model_like
from rlhf_lab.models.microbatches import split
from rlhf_lab.models.numerical_check import is_splittable
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.runs.memory import OutOfMemory
from rlhf_lab.training.engines.options import (
    DeepSpeedOptions,
    EngineOptions,
    FSDPOptions,
    SingleEngineOptions,
)
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.precision import Precision
from tests.conftest import MakeConfig
from tests.support import engine_cases
from tests.support.engine_cases import (
    ALGOS,
    RATE,
    batch_of,
    engine,
    groups,
    losses,
    policy,
    restore,
    rows_of,
    saved,
    updates,
)
from tests.support.variants import tuples

pytestmark = pytest.mark.usefixtures("costly")


def one_piece() -> SingleEngineOptions:
    return SingleEngineOptions(micro_rows=64, logit_tokens=0)


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize(
    "changed",
    [
        {"micro_rows": 2},
        {"micro_tokens": 40},
        {"logit_tokens": 3},
        {"gradient_checkpointing": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_saves_memory_changes_nothing_beyond_rounding(
    algo: str, changed: dict[str, Any]
) -> None:
    whole = engine(one_piece(), algo)
    first = updates(whole, algo, [0, 1, 2])
    options = replace(one_piece(), **changed)
    second = updates(engine(options, algo), algo, [0, 1, 2])
    assert losses(second) == pytest.approx(losses(first), abs=1e-5)
    for one, other in zip(first, second, strict=True):
        for name, column_B in one.rows.items():
            assert torch.allclose(other.rows[name], column_B, atol=1e-4), name


def test_what_all_tokens_of_an_update_decide_is_the_same_in_every_micro_batch() -> None:
    found = []
    for micro_rows in (64, 2):
        made = engine(SingleEngineOptions(micro_rows=micro_rows, logit_tokens=0), "ppo")
        batch = batch_of(made, "ppo", 0)
        log_ratio_BT = torch.linspace(-0.6, 0.6, batch.mask_BT.numel()).view_as(batch.mask_BT)
        batch = replace(batch, proximal_logp_BT=batch.behavior_logp_BT + log_ratio_BT)
        found.append(made.update(batch, ALGOS["ppo"], M2PO(moment=0.03), RATE))
    assert losses(found[:1]) == pytest.approx(losses(found[1:]), abs=1e-5)
    whole, parts = (updated.rows["zeroed"] for updated in found)
    assert torch.equal(whole, parts)
    assert 0 < float(whole.sum()) < 1


@pytest.mark.parametrize(
    ("algo", "kind"),
    tuples(
        product(ALGOS, ("causal", "blocks")),
        [("ppo", "causal"), *((algo, "blocks") for algo in ALGOS)],
    ),
)
def test_an_engine_learns_the_same_as_rows_are_read_on_a_gpu(algo: str, kind: str) -> None:
    padded = engine(SingleEngineOptions(micro_rows=4), algo)
    first = updates(padded, algo, [0, 1, 2])
    with rows_of(f"single-{kind}"):
        maskless = engine(SingleEngineOptions(micro_rows=4), algo)
        second = updates(maskless, algo, [0, 1, 2])
    assert losses(second) == pytest.approx(losses(first), abs=1e-5)
    for one, other in zip(first, second, strict=True):
        for name, column_B in one.rows.items():
            assert torch.allclose(other.rows[name], column_B, atol=1e-4), name


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("chunks", [2, 5, 100])
def test_chunks_of_logits_give_the_same_output_and_gradient(
    chunks: int, temperature: float
) -> None:
    """Also with more chunks than tokens, and with a value head on the same hidden states."""
    batch = collate(groups(0), pad_id=0)
    model = policy()
    head = value_model_like(model, is_shared=True)
    for weight in head.score.parameters():
        torch.nn.init.constant_(weight, 0.1)

    def pull(num: int) -> tuple[Any, list[torch.Tensor]]:
        model.zero_grad()
        output = response_output(model, batch, temperature, head, num)
        assert output.value_BT is not None
        (output.logp_BT.square().sum() + output.value_BT.sum()).backward()  # type: ignore[no-untyped-call]
        return output, [p.grad.clone() for p in model.parameters()]

    whole, by_whole = pull(1)
    parts, by_parts = pull(chunks)
    for name in ("logp_BT", "entropy_BT", "value_BT"):
        assert torch.allclose(getattr(parts, name), getattr(whole, name), atol=1e-5), name
    assert not parts.entropy_BT.requires_grad
    for one, other in zip(by_whole, by_parts, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_at_most_so_many_tokens_are_in_a_chunk() -> None:
    assert [num_chunks(tokens, 4) for tokens in (0, 1, 4, 5, 8, 9)] == [1, 1, 1, 2, 2, 3]
    assert num_chunks(10**6, 0) == 1


class Scaled(torch.nn.Module):
    """A model that does something to its logits, as some do."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.config = model.config
        self.base_model = model.base_model

    def get_output_embeddings(self) -> Any:
        return self.model.get_output_embeddings()

    def forward(self, **given: Any) -> Any:
        output = self.model(**given)
        output.logits = output.logits * 0.5
        return output


def test_a_model_that_changes_its_logits_is_asked_itself() -> None:
    model = policy()
    assert is_splittable(model)
    assert not is_splittable(Scaled(model))
    model.config.final_logit_softcapping = 30.0
    assert not is_splittable(model)


@given(max_rows=st.integers(1, 12), max_tokens=st.integers(1, 120), seed=st.integers(0, 20))
def test_buckets_hold_every_group_once_within_their_limits(
    max_rows: int, max_tokens: int, seed: int
) -> None:
    batch = collate(groups(seed, 7), pad_id=0)
    parts = list(split(batch, max_rows, max_tokens))
    assert sorted(torch.cat([part.index_B for part in parts]).tolist()) == list(range(14))
    for part in parts:
        assert torch.equal(part.batch.group_B, batch.group_B[part.index_B])
        is_one_group = len(set(part.batch.group_B.tolist())) == 1
        assert is_one_group or (len(part.batch) <= max_rows and part.padded_tokens <= max_tokens)
    width = batch.prompt_BS.shape[1] + batch.response_BT.shape[1]
    assert sum(part.padded_tokens for part in parts) <= len(batch) * width


def test_rows_of_like_length_share_a_micro_batch() -> None:
    batch = collate(groups(3, 8), pad_id=0)
    longest = (batch.prompt_mask_BS.sum(dim=1) + batch.mask_BT.sum(dim=1)).tolist()
    parts = list(split(batch, 4, 1000))
    tops = [max(longest[row] for row in part.index_B.tolist()) for part in parts]
    assert tops[0] == max(longest)
    in_order = sum(part.padded_tokens for part in split(batch, 4))
    assert sum(part.padded_tokens for part in parts) < in_order


def test_gradient_checkpointing_recomputes_layers_and_turns_no_dropout_on() -> None:
    model = policy()
    model.config.attention_dropout = 0.5
    for layer in model.base_model.layers:
        layer.attention.attention_dropout = 0.5
        layer.post_attention_dropout.p = layer.post_mlp_dropout.p = 0.5
    calls: list[int] = []
    model.base_model.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    options = replace(one_piece(), gradient_checkpointing=True)
    saving = engine(options, "online_dpo", model)
    calls.clear()
    found = losses(updates(saving, "online_dpo", [0, 1]))
    assert len(calls) == 2 * 3, "of each update the reference's pass, the policy's, and it again"
    expected = losses(updates(engine(one_piece(), "online_dpo"), "online_dpo", [0, 1]))
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("algo", ALGOS)
def test_a_checkpoint_of_one_engine_goes_on_in_another(algo: str) -> None:
    """Whoever held the parameters: whole tensors by name."""
    alone, parts = engine(one_piece(), algo), engine(FSDPOptions(), algo)
    updates(alone, algo, [0, 1])
    restore(parts, saved(alone))
    expected = losses(updates(alone, algo, [2]))
    assert losses(updates(parts, algo, [2])) == pytest.approx(expected, abs=1e-5)
    restore(alone, saved(parts))
    assert losses(updates(alone, algo, [3])) == pytest.approx(
        losses(updates(parts, algo, [3])), abs=1e-5
    )


@pytest.mark.parametrize("kind", [SingleEngineOptions, FSDPOptions])
def test_bfloat16_keeps_float32_masters_through_a_checkpoint(
    kind: type[SingleEngineOptions | FSDPOptions],
) -> None:
    """Steps too small for bfloat16 weights add up in the masters, and survive a restart."""
    options = kind(dtype=Precision.bfloat16)
    model = policy().bfloat16()
    mixed = engine(options, "online_dpo", model)
    held = saved(mixed)
    name = next(iter(held["weights"]))
    assert held["weights"][name].dtype == torch.bfloat16
    updates(mixed, "online_dpo", [0])
    held = saved(mixed)
    master = held["state"][f"{name}/master"]
    assert master.dtype == torch.float32
    assert not torch.equal(master, master.bfloat16().float())
    again = engine(options, "online_dpo", policy().bfloat16())
    restore(again, held)
    assert torch.equal(again.state()[f"{name}/master"], master)


@pytest.mark.parametrize(
    "options",
    [
        SingleEngineOptions(),
        FSDPOptions(),
        pytest.param(DeepSpeedOptions(stage=2), marks=pytest.mark.slow),
        DeepSpeedOptions(stage=3),
    ],
    ids=lambda options: f"{options.name}{getattr(options, 'stage', '')}",
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_gradients_are_left_as_they_are_without_a_largest_norm(
    options: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learnt(largest: float) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(engine_cases, "MAX_GRAD_NORM", largest)
        trained = engine(options, "online_dpo")
        assert updates(trained, "online_dpo", [0])[0].metrics["grad_norm"] > 1e-3
        return dict(trained.weights(0).state)

    free, far, near = learnt(0.0), learnt(1e9), learnt(1e-3)
    assert all(torch.equal(free[name], far[name]) for name in free)
    assert any(not torch.equal(free[name], near[name]) for name in free)


@pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs rlhf-lab[deepspeed]")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_stage_3_computes_linear_layers_of_its_own_models_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DeepSpeed replaces their function in the whole process, where generators have other bits."""
    from deepspeed.runtime.zero import partition_parameters

    own, calls = partition_parameters.zero3_linear_wrap, []

    def counted(*tensors: torch.Tensor) -> object:
        calls.append(len(tensors))
        return own(*tensors)

    monkeypatch.setattr(partition_parameters, "zero3_linear_wrap", counted)
    linear = torch.nn.functional.linear
    trained = engine(DeepSpeedOptions(stage=3), "online_dpo")
    assert torch.nn.functional.linear is linear
    updates(trained, "online_dpo", [0])
    assert calls


def test_a_checkpoint_of_another_model_is_refused_by_name_and_shape() -> None:
    wide = policy(ScratchModel("wide", hidden_size=64, num_layers=2, num_heads=4))
    deep = policy(ScratchModel("deep", hidden_size=32, num_layers=3, num_heads=4))
    here = engine(one_piece(), "online_dpo")
    before = here.weights(0)
    for other, told in ((wide, r"\[.*64\], here \[.*32\]"), (deep, "layers.2")):
        held = saved(engine(one_piece(), "online_dpo", other))
        with pytest.raises(UserError, match=f"another model: .*{told}.*began with"):
            restore(here, held)
    with pytest.raises(UserError, match=r"values\.\S+/values"):
        restore(engine(one_piece(), "ppo"), saved(here))
    after = here.weights(0)
    assert all(torch.equal(after.state[name], before.state[name]) for name in before.state)


def test_log_probs_under_other_weights_leave_no_trace() -> None:
    for options in (one_piece(), FSDPOptions()):
        here = engine(options, "online_dpo")
        batch = batch_of(here, "online_dpo", 0)
        now = here.weights(0)
        other = Weights(1, {name: 0.9 * tensor for name, tensor in now.state.items()})
        first = here.logp(batch, now)
        assert not torch.allclose(here.logp(batch, other), first, atol=1e-2)
        assert torch.equal(here.logp(batch, Weights(0, dict(now.state))), first)
        after = here.weights(0)
        assert all(torch.equal(after.state[name], now.state[name]) for name in now.state)


def test_entropies_are_those_of_the_distributions_under_the_given_weights() -> None:
    for options in (one_piece(), FSDPOptions()):
        here = engine(options, "online_dpo")
        batch = batch_of(here, "online_dpo", 0)
        now = here.weights(0)
        flat = Weights(1, {name: torch.zeros_like(tensor) for name, tensor in now.state.items()})
        first_BT, flat_BT = here.entropy(batch, now), here.entropy(batch, flat)
        # All tokens are as likely under weights of zero.
        vocabulary = next(t.shape[0] for n, t in now.state.items() if "embed" in n)
        assert flat_BT[batch.mask_BT > 0].tolist() == pytest.approx(
            [math.log(vocabulary)] * int(batch.mask_BT.sum()), abs=1e-5
        )
        assert (first_BT[batch.mask_BT > 0] < flat_BT[batch.mask_BT > 0]).all()
        assert (first_BT[batch.mask_BT == 0] == 0).all()
        assert torch.equal(here.entropy(batch, now), first_BT)


def test_a_shortage_of_memory_names_the_phase_and_what_to_lower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = engine(SingleEngineOptions(micro_rows=8), "online_dpo")
    batch = batch_of(here, "online_dpo", 0)

    def exhausted(*given: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(here._backend, "output", exhausted)
    with pytest.raises(
        OutOfMemory, match=r"in the update .*: lower engine\.micro_rows=8.*logit_to"
    ):
        here.update(batch, ALGOS["online_dpo"], NoCorrection(), 1e-3)
    monkeypatch.setattr(here._backend, "reference", exhausted)
    with pytest.raises(OutOfMemory, match="in the log-probs of the reference"):
        here.reference_logp(batch)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["engine=deepspeed", "engine.stage=4"], "engine.stage=4 .*choose 2 to 3"),
        (["engine.micro_tokens=-2"], "engine.micro_tokens=-2 .*or 0 for no such limit"),
        (["engine.tf32=true", "mode=async", "mode.executor=thread"], "tf32=true with mode.exec"),
        (["engine.logit_tokens=-1"], "engine.logit_tokens=-1"),
        (["engine=fsdp", "engine.micro_rows=0"], "engine.micro_rows=0 is out of range: choose 1"),
        (["engine=fsdp", "engine.threads=0"], "engine.threads=0 is out of range: choose 1"),
        (["engine.device=cuda"], "engine.device=cuda.*engine.device=cpu"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(
    config_of: MakeConfig, overrides: list[str], told: str
) -> None:
    if "engine.device=cuda" in overrides and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UserError, match=told):
        checks.check(config_of(*overrides))


def test_deepspeed_is_asked_for_by_name_where_it_is_missing(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlhf_lab.tasks.optional_packages.find_spec", lambda module: None)
    with pytest.raises(
        UserError, match=r"pip install 'rlhf-lab\[deepspeed\]', or pass engine=fsdp"
    ):
        checks.check(config_of("engine=deepspeed"))
