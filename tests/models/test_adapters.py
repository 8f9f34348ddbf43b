"""LoRA: merged weights say what the adapters say, the reference stays, and every bit comes back."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.func import functional_call

from rlhf_lab.experiment import lifecycle
from rlhf_lab.experiment.checks import check
from rlhf_lab.experiment.prepare import Artifacts
from rlhf_lab.models.adapters import (
    adapters_off,
    has_adapters,
    is_adapter,
    merged_weight,
    plain_names,
    with_adapters,
)
from rlhf_lab.models.batching import token_weights
from rlhf_lab.models.lora import Lora
from rlhf_lab.models.scratch import ScratchModel
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.data import Batch
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import outcome
from tests.training.test_needs import engine_of

pytest.importorskip("peft", reason="pip install 'rlhf-lab[lora]'")

TOKENS = torch.tensor([[5, 6, 7, 8, 9, 2], [3, 4, 30, 31, 2, 1]])
SHORT = ("run.updates=8", "eval=none", "eval.snapshots=0", "sft.steps=4", "model.lora_rank=4")
KINDS = ("GPTNeoX", "Llama", "GPT2")


def merged_state(model: Any) -> dict[str, torch.Tensor]:
    """All weights under the plain model's names, adapters merged."""
    return {plain: merged_weight(model, name) for plain, name in plain_names(model).items()}


def adapter_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if is_adapter(name)}


def model_of(kind: str, tied: bool = True, dtype: torch.dtype = torch.float32) -> Any:
    """A random causal language model of a few thousand parameters."""
    llama = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape = {
        "GPTNeoX": {**llama, "intermediate_size": 32},
        "Llama": {**llama, "intermediate_size": 32, "num_key_value_heads": 1},
        "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    }[kind]
    ends = {"bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": tied}
    config = getattr(transformers, f"{kind}Config")(vocab_size=50, **shape, **ends)
    head = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM"
    torch.manual_seed(0)
    return getattr(transformers, head)(config).to(dtype).eval()


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(TOKENS).logits)


def moved(model: Any) -> Any:
    """The model with adapters as training might leave them: no longer zero."""
    generator = torch.Generator().manual_seed(3)
    for parameter in adapter_parameters(model).values():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    return model


def test_merged_weights_by_hand() -> None:
    """W + alpha / rank * B A = [[1, 0], [0, 1]] + 6 / 2 * [[1, 0], [2, 1]] [[1, 2], [0, 1]]."""
    model = model_of("Llama")
    proj = model.model.layers[0].self_attn.k_proj
    with torch.no_grad():
        proj.weight.copy_(torch.eye(8, 16))
    with_adapters(model, Lora(rank=2, alpha=6.0, targets=["k_proj"]), seed=1)
    for name, parameter in adapter_parameters(model).items():
        small = [[1.0, 2.0], [0.0, 1.0]] if ".lora_A." in name else [[1.0, 0.0], [2.0, 1.0]]
        parameter.data.zero_()
        parameter.data[:2, :2] = torch.tensor(small)
    whole = merged_state(model)["model.layers.0.self_attn.k_proj.weight"]
    expected = torch.eye(8, 16)
    expected[:2, :2] = torch.tensor([[4.0, 6.0], [6.0, 16.0]])
    assert torch.equal(whole, expected)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_whoever_reads_merged_weights_reads_the_policy(kind: str, tied: bool) -> None:
    plain = model_of(kind, tied)
    names = [name for name, _ in plain.named_parameters()]
    model = moved(with_adapters(model_of(kind, tied), Lora(4), seed=1))
    policy = logits(model)
    state = merged_state(model)
    assert list(state) == names
    assert torch.equal(logits(model), policy), "the live model was not touched"
    with adapters_off(model):
        own = {name: state[plain] for plain, name in plain_names(model).items()}
        given: Any = functional_call(model, own, (), {"input_ids": TOKENS})
    assert torch.allclose(given.logits, policy, atol=1e-6)
    plain.load_state_dict(state, strict=False)
    assert torch.allclose(logits(plain), policy, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_starts_as_its_reference_and_leaves_it_behind(kind: str) -> None:
    before = logits(model_of(kind))
    model = with_adapters(model_of(kind), Lora(4), seed=1)
    assert torch.equal(logits(model), before)
    moved(model)
    assert not torch.allclose(logits(model), before, atol=1e-2)
    with torch.inference_mode(), adapters_off(model) as reference:
        assert torch.equal(reference(TOKENS).logits, before)
    assert [n for n, p in model.named_parameters() if p.requires_grad] == list(
        adapter_parameters(model)
    )


def test_a_plain_model_is_its_own_state() -> None:
    model = model_of("Llama")
    assert not has_adapters(model)
    for name, parameter in model.named_parameters():
        assert torch.equal(merged_state(model)[name], parameter)
        assert merged_state(model)[name].data_ptr() != parameter.data_ptr()


def test_adapters_depend_on_the_seed_alone() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (
        adapter_parameters(with_adapters(model_of("Llama"), Lora(4), seed=seed))
        for seed in (1, 1, 2)
    )
    torch.manual_seed(0)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)
    torch.random.set_rng_state(before)
    with_adapters(model_of_without_drawing(), Lora(4), seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)


def model_of_without_drawing() -> Any:
    with torch.random.fork_rng(devices=[]):
        return model_of("Llama")


def test_half_precision_weights_have_adapters_in_full_precision() -> None:
    model = moved(with_adapters(model_of("Llama", dtype=torch.bfloat16), Lora(4), seed=1))
    assert {p.dtype for p in adapter_parameters(model).values()} == {torch.float32}
    state = merged_state(model)
    assert {tensor.dtype for tensor in state.values()} == {torch.bfloat16}
    plain = model_of("Llama", dtype=torch.bfloat16)
    name = "model.layers.1.mlp.up_proj"
    found = adapter_parameters(model)
    b, a = (found[f"{name}.lora_{part}.default.weight"] for part in "BA")
    exact = plain.get_parameter(f"{name}.weight").float() + 4.0 * (b @ a)
    assert torch.equal(state[f"{name}.weight"], exact.to(torch.bfloat16))


def test_modules_can_be_named(make_config: MakeConfig) -> None:
    lora = Lora(4, targets=["q_proj", "v_proj"])
    found = adapter_parameters(with_adapters(model_of("Llama"), lora, seed=1))
    assert {name.split(".")[4] for name in found} == {"q_proj", "v_proj"}
    config = make_config("model.lora_rank=2", "model.lora_targets=[dense,query_key_value]")
    assert config.model.lora == Lora(2, 16.0, ["dense", "query_key_value"])


@pytest.mark.parametrize(
    ("targets", "complaint"),
    [
        (["q_porj"], r"names q_porj, which the model does not have: choose among .*q_proj"),
        (["lm_head"], r"names lm_head, which is tied to the input embedding"),
        (["mlp"], r"names model.layers.0.mlp, which is no linear module"),
        ([], r"model.lora_targets=\[\] names no module"),
        (["all-linear", "q_proj"], r"all-linear stands alone"),
    ],
)
def test_modules_that_cannot_have_adapters_are_refused(targets: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        with_adapters(model_of("Llama"), Lora(4, targets=targets), seed=1)


def test_options_that_cannot_work_are_refused(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for option, complaint in (
        ("model.lora_rank=-1", "model.lora_rank=-1 is out of range: choose 1 to 100000, or 0"),
        ("model.lora_alpha=0", "model.lora_alpha=0.0 is out of range: choose above 0"),
    ):
        with pytest.raises(UserError, match=complaint):
            make_config(option)
    with pytest.raises(UserError, match=r"proxy.lora_rank=4: reward models are trained whole"):
        check(make_config("proxy.lora_rank=4"))
    with pytest.raises(UserError, match=r"model.lora_rank=4 with algo=.*its reference moves"):
        check(make_config("model.lora_rank=4", "algo=online_dpo", "algo.refresh_every=3"))
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the package peft.*pip install 'rlhf-lab\[lora\]'"):
        check(make_config("model.lora_rank=4"))


def weighted(batch: Batch, config: Any) -> Batch:
    """The batch as an update would see it, every token praised."""
    part = replace(batch, credit_BT=batch.mask_BT.clone())
    return replace(part, weight_BT=token_weights(part, config.algo.reduction))


def test_the_engine_trains_adapters_alone_and_its_reference_stays(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, "algo=reinforce")
    engine, batch = engine_of(config)
    start, part = engine.weights(0), weighted(batch, config)
    reference_BT = engine.reference_logp(batch)
    assert torch.equal(reference_BT, engine.logp(batch, start))
    for _ in range(3):
        engine.update(part, config.algo, config.correction, 3e-3)
    assert torch.equal(engine.reference_logp(batch), reference_BT)
    assert torch.equal(engine.logp(batch, start), reference_BT)
    after_BT = engine.logp(batch, engine.weights(1))
    assert float((after_BT - reference_BT).sum()) > 1.0, "praised tokens became likelier"
    names = {key.rpartition("/")[0] for key in engine.state()}
    assert names and all(".lora_" in name for name in names)


def test_adapters_of_full_rank_learn_what_they_are_told(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, "model.lora_rank=112", "model.lora_alpha=112", "algo=reinforce")
    engine, batch = engine_of(config)
    part = weighted(batch, config)
    losses = [
        engine.update(part, config.algo, config.correction, 3e-3).metrics["loss"] for _ in range(15)
    ]
    assert losses[-1] < 0.5 * losses[0]


def test_an_engine_goes_on_from_its_state_bit_for_bit(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, "algo=reinforce")
    engine, batch = engine_of(config)
    part = weighted(batch, config)
    for _ in range(2):
        engine.update(part, config.algo, config.correction, 3e-3)
    weights, state = engine.weights(2), engine.state()
    other, _ = engine_of(config)
    other.restore(weights, state)
    for one in (engine, other):
        one.update(part, config.algo, config.correction, 3e-3)
    mine, theirs = engine.weights(3).state, other.weights(3).state
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert torch.equal(engine.reference_logp(batch), other.reference_logp(batch))


def test_a_resumed_run_ends_with_the_same_bits(make_config: MakeConfig, tmp_path: Path) -> None:
    options = (*SHORT, "mode=lagged", "checkpoint=rounds", "checkpoint.keep=3", "optim.lr=3e-3")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    lifecycle.train(make_config(*options, f"output.dir={whole}"), Console(quiet=True), FACTS)
    shutil.copytree(whole, cut)
    manifest = json.loads((cut / "manifest.json").read_text())
    del manifest["weights_digest"]
    (cut / "manifest.json").write_text(json.dumps(manifest | {"state": "failed"}))
    shutil.rmtree(sorted((cut / "checkpoints").iterdir())[-1])
    resuming = make_config(*options, f"output.dir={cut}", "output.resume=true")
    lifecycle.train(resuming, Console(quiet=True), FACTS)
    assert outcome(cut) == outcome(whole)
    one, other = (folder / "policy" / "model.safetensors" for folder in (whole, cut))
    assert one.read_bytes() == other.read_bytes()


def test_stages_before_the_run_do_not_depend_on_its_adapters(make_config: MakeConfig) -> None:
    plain, adapted = (
        Artifacts(make_config("sft.steps=4", f"model.lora_rank={rank}"), Console(quiet=True))
        for rank in (0, 4)
    )
    config = make_config("model.lora_rank=4")
    assert isinstance(config.model, ScratchModel)
    assert adapted.sft(config.model).folder == plain.sft(config.model.whole).folder
