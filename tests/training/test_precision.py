"""Passes in bfloat16 with float32 masters, in one process."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.experiment.rules import checks
from rlhf_lab.experiment.rules.derived import precision
from rlhf_lab.models.devices import tensor_float
from rlhf_lab.models.weights import with_parameters_in
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.training.engines import tensors
from rlhf_lab.training.engines.options import (
    TOKENS_ON_GPU,
    DeepSpeedOptions,
    FSDPOptions,
    SingleEngineOptions,
)
from rlhf_lab.training.engines.parameter_backend import WEIGHT
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.precision import Precision
from tests.conftest import MakeConfig
from tests.support.engine_cases import (
    ALGOS,
    batch_of,
    engine,
    losses,
    policy,
    restore,
    saved,
    updates,
)

pytestmark = pytest.mark.usefixtures("costly")

LOW = SingleEngineOptions(dtype=Precision.bfloat16)
FULL = SingleEngineOptions()


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize(
    "changed",
    [{}, {"logit_tokens": 3}, {"gradient_checkpointing": True}, {"share_prompts": False}],
    ids=lambda changed: next(iter(changed), "plain"),
)
def test_low_passes_agree_with_float32_up_to_their_rounding(
    algo: str, changed: dict[str, Any]
) -> None:
    low = updates(engine(replace(LOW, **changed), algo), algo, [0, 1, 2])
    full = updates(engine(FULL, algo), algo, [0, 1, 2])
    assert losses(low) == pytest.approx(losses(full), abs=3e-2)
    assert losses(low) != losses(full)
    for one, other in zip(low, full, strict=True):
        assert one.rows.keys() == other.rows.keys()
        assert all(column.dtype == other.rows[name].dtype for name, column in one.rows.items())
        assert one.metrics["grad_norm"] == pytest.approx(other.metrics["grad_norm"], rel=0.1)


@pytest.mark.parametrize("algo", ALGOS)
def test_low_passes_agree_with_those_of_fsdp(algo: str) -> None:
    low = updates(engine(LOW, algo), algo, [0, 1])
    other = updates(engine(FSDPOptions(dtype=Precision.bfloat16), algo), algo, [0, 1])
    assert losses(low) == pytest.approx(losses(other), abs=3e-2)


@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16])
def test_steps_below_the_resolution_of_bfloat16_move_the_masters(own: torch.dtype) -> None:
    low = engine(LOW, "online_dpo", policy().to(own))
    batch = batch_of(low, "online_dpo", 0)
    name = next(iter(low.weights(0).state))
    before = low._backend.read(name, WEIGHT)
    done = low.update(batch, ALGOS["online_dpo"], NoCorrection(), 3e-6)
    after = low._backend.read(name, WEIGHT)
    assert (before.dtype, after.dtype) == (torch.float32, torch.float32)
    step = (after - before).abs().max()
    assert 0 < step < 1e-5
    assert done.metrics["grad_norm"] > 0
    moved = (after != before).float().mean()
    lost = (after.bfloat16() == before.bfloat16()).float().mean()
    assert moved > 0.1
    assert lost > 0.95, "weights of half precision would not have moved"
    assert low.weights(1).state[name].dtype == own


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [LOW, FULL], ids=["low", "full"])
def test_a_resumed_engine_repeats_bit_for_bit(
    algo: str, own: torch.dtype, options: SingleEngineOptions
) -> None:
    first = engine(options, algo, policy().to(own))
    updates(first, algo, [0, 1])
    held = copy.deepcopy(saved(first))
    again = engine(options, algo, policy().to(own))
    restore(again, held)
    assert losses(updates(again, algo, [2])) == losses(updates(first, algo, [2]))
    ours, theirs = saved(first), saved(again)
    for kind in ("weights", "state"):
        assert ours[kind].keys() == theirs[kind].keys()
        for name, tensor in ours[kind].items():
            assert torch.equal(tensor, theirs[kind][name]), name


def test_a_frozen_reference_in_half_the_memory_has_the_bits_of_the_policy() -> None:
    low = engine(LOW, "online_dpo")
    batch = batch_of(low, "online_dpo", 0)
    assert torch.equal(batch.reference_logp_BT, low.logp(batch, low.weights(0)))
    kinds = {parameter.dtype for parameter in low._backend._reference_networks.parameters()}  # type: ignore[attr-defined]
    assert kinds == {torch.bfloat16, torch.float32}


def test_log_probs_under_other_weights_are_of_low_passes_too() -> None:
    low = engine(LOW, "online_dpo")
    batch = batch_of(low, "online_dpo", 0)
    now = low.weights(0)
    first = low.logp(batch, now)
    assert torch.equal(low.logp(batch, replace(now, state=dict(now.state))), first)


@pytest.mark.parametrize("algo", ALGOS)
@pytest.mark.parametrize("own", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", [LOW, FULL], ids=["low", "full"])
def test_adapters_are_float32_above_frozen_weights(
    algo: str, own: torch.dtype, options: SingleEngineOptions
) -> None:
    pytest.importorskip("peft")
    adapted = engine(options, algo, policy().to(own), lora_rank=2)
    frozen = {name: tensor.clone() for name, tensor in adapted.weights(0).state.items()}
    done = updates(adapted, algo, [0, 1])
    assert all(torch.isfinite(torch.tensor(losses(done))))
    trained = adapted._backend.trained  # type: ignore[attr-defined]
    assert {parameter.dtype for parameter in trained.values()} == {torch.float32}
    after = adapted.weights(2).state
    assert {tensor.dtype for tensor in after.values()} == {own}
    assert any(not torch.equal(after[name], tensor) for name, tensor in frozen.items())


def test_adamw_over_weights_of_half_precision_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match=r"train weights in torch\.bfloat16 themselves"):
        tensors.adamw(policy().bfloat16().parameters(), Optim())


@pytest.mark.parametrize("to_fused", [True, False])
def test_the_optimizer_goes_on_fused_or_not(
    monkeypatch: pytest.MonkeyPatch, to_fused: bool
) -> None:
    """torch has a fused AdamW of CPUs too, with the state of that of GPUs."""

    def fused(parameters: Any, optim: Optim) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            list(parameters), lr=optim.lr, weight_decay=optim.weight_decay, fused=True
        )

    def made(is_fused: bool) -> Any:
        with monkeypatch.context() as patch:
            if is_fused:
                patch.setattr(tensors, "adamw", fused)
            return engine(FULL, "online_dpo")

    first, again = made(not to_fused), made(to_fused)
    updates(first, "online_dpo", [0, 1])
    restore(again, copy.deepcopy(saved(first)))
    expected = losses(updates(first, "online_dpo", [2, 3]))
    assert losses(updates(again, "online_dpo", [2, 3])) == pytest.approx(expected, abs=1e-5)


def test_a_fused_optimizer_counts_its_steps_on_the_device() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, device="meta"))
    plain = torch.optim.AdamW([weight])
    assert tensors.step_device(plain, weight).type == "cpu"
    plain.param_groups[0]["fused"] = True
    assert tensors.step_device(plain, weight).type == "meta"


def test_auto_is_bfloat16_and_passes_of_so_many_tokens_on_a_gpu() -> None:
    for options in (SingleEngineOptions(), FSDPOptions(), DeepSpeedOptions()):
        gpu, cpu = options.on("cuda"), options.on("cpu")
        assert (gpu.dtype, gpu.micro_tokens) == (Precision.bfloat16, TOKENS_ON_GPU)
        assert (cpu.dtype, cpu.micro_tokens) == (Precision.float32, 0)
    named = SingleEngineOptions(dtype=Precision.float32, micro_tokens=7).on("cuda")
    assert (named.dtype, named.micro_tokens) == (Precision.float32, 7)


def test_float32_on_a_gpu_is_warned_of(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)

    def warned(*overrides: str) -> list[str]:
        found = checks.warnings(make_config(*overrides))
        return [warning for warning in found if "on a GPU" in warning]

    assert len(warned("engine.dtype=float32")) == 1
    assert "engine.dtype=bfloat16" in warned("engine.dtype=float32")[0]
    assert not warned()
    assert not warned("engine.device=cpu")
    assert not warned("engine.dtype=float32", "engine.tf32=true")


def test_tf32_is_of_the_trainers_passes_alone() -> None:
    before = torch.get_float32_matmul_precision()
    with tensor_float(True):
        assert torch.get_float32_matmul_precision() == "high"
    with tensor_float(False):
        assert torch.get_float32_matmul_precision() == before
    assert torch.get_float32_matmul_precision() == before


def test_the_generator_is_bfloat16_on_a_gpu_unless_it_is_named() -> None:
    assert HFSampling().dtype_on("cuda", "float32") == "bfloat16"
    assert HFSampling().dtype_on("cuda", "float16") == "float16"
    assert HFSampling().dtype_on("cpu", "float32") == "float32"
    assert HFSampling(dtype="float32").dtype_on("cuda", "float32") == "float32"
    with pytest.raises(UserError, match=r"generator\.dtype=int8: choose one of auto, float32"):
        HFSampling(dtype="int8")


def test_the_generators_copy_changes_its_type_and_keeps_its_buffers() -> None:
    model = policy()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    half = with_parameters_in(model, torch.bfloat16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in half.named_buffers())


def test_a_manifest_tells_device_and_type(
    make_config: MakeConfig, config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tf32 = {"tf32": False}
    assert precision(make_config("engine.device=cpu", "generator.device=cpu")) == {
        "engine": {"device": "cpu", "dtype": "float32", "micro_tokens": 0, **tf32},
        "generator": {"device": "cpu", "dtype": "float32"},
    }
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert precision(make_config()) == {
        "engine": {"device": "cuda", "dtype": "bfloat16", "micro_tokens": TOKENS_ON_GPU, **tf32},
        "generator": {"device": "cuda", "dtype": "bfloat16"},
        "reward": {"device": "cuda", "dtype": "bfloat16"},
    }
    judged = ("reward=function", "reward.path=m.f", "reward@judge=reward_model", "judge.path=p")
    assert "judge" not in precision(config_of(*judged, "judge.device=cpu"))
    half = precision(config_of(*judged, "judge.device=cpu", "judge.dtype=bfloat16"))
    assert half["judge"] == {"device": "cpu", "dtype": "bfloat16"}
    assert "reward" not in half
