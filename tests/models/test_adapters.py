"""LoRA: merged weights say what the adapters say, the reference stays, and every bit comes back."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import transformers
from torch import Tensor
from torch.func import functional_call

from rlhf_lab.experiment.artifacts.prepare import Artifacts
from rlhf_lab.experiment.build.engine import build_engine
from rlhf_lab.experiment.config.config import Config
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.rules.derived import sampling_of
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.experiment.run.round_warnings import RoundWarnings
from rlhf_lab.models.adapters import (
    adapters_off,
    has_adapters,
    is_adapter,
    kept_share,
    merged_weight,
    plain_names,
    with_adapters,
)
from rlhf_lab.models.batching import token_weights
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.options import Lora, PretrainedModel, ScratchModel
from rlhf_lab.models.weights import load_weights
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.arithmetic import Arithmetic
from rlhf_lab.training.engines.single import SingleBackend
from rlhf_lab.types.data import Batch, Weights
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import FACTS
from tests.support.survival import outcome
from tests.training.test_needs import engine_of, sampled

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
    plain = model_of("Llama", dtype=torch.bfloat16)
    name = "model.layers.1.mlp.up_proj"
    found = adapter_parameters(model)
    b, a = (found[f"{name}.lora_{part}.default.weight"] for part in "BA")
    exact = plain.get_parameter(f"{name}.weight").float() + 4.0 * (b @ a)
    assert torch.equal(state[f"{name}.weight"], exact)


def halves(make_config: MakeConfig, tmp_path: Path, *options: str) -> Config:
    """A run that trains adapters beside a small Llama whose weights are in half precision."""
    tokenizer = Arithmetic().tokenizer()
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), num_attention_heads=4, bos_token_id=None, **shape, **ends
    )
    save_policy(transformers.LlamaForCausalLM(config).bfloat16(), tokenizer, tmp_path / "llama")
    model = ("model=pretrained", f"model.path={tmp_path}/llama", "model.dtype=bfloat16")
    run = ("task=arithmetic", "reward=task_rule", "algo=reinforce", "model.lora_rank=4")
    return make_config(*run, *model, *options)


def differing(one: Weights, other: Weights, dtype: torch.dtype) -> float:
    """Share of the weights of linear layers that differ between two versions as this type."""
    names = [name for name in one.state if "_proj" in name]
    found = [(one.state[name].to(dtype) != other.state[name].to(dtype)).float() for name in names]
    return float(torch.cat([part.flatten() for part in found]).mean())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_versions_of_adapters_keep_updates_that_half_precision_would_lose(
    dtype: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = halves(make_config, tmp_path, f"engine.dtype={dtype}")
    engine = build_engine(config, load_policy(cast(PretrainedModel, config.model), None, 0)[0])
    policy = cast(SingleBackend, engine._backend).networks.policy
    frozen = {name: p.clone() for name, p in policy.named_parameters() if not p.requires_grad}
    part, start = weighted(engine_of(config)[1], config), engine.weights(0)
    for _ in range(50):
        done = engine.update(part, config.algo, config.correction, 1e-6)
    end = engine.weights(1)
    assert differing(start, end, torch.float32) > 0.99
    assert differing(start, end, torch.bfloat16) < 0.9
    assert done.metrics["adapters_kept"] > 0.99
    assert kept_share(policy, torch.bfloat16) == pytest.approx(
        differing(start, end, torch.bfloat16), abs=0.02
    )
    for name, weight in frozen.items():
        assert torch.equal(policy.get_parameter(name), weight)
    # Where passes are in half precision, so are the matrices below adapters.
    held = policy.get_parameter("model.layers.0.mlp.up_proj.base_layer.weight")
    assert held.dtype == getattr(torch, dtype)


def test_samples_are_of_the_policy_that_is_trained(make_config: MakeConfig, tmp_path: Path) -> None:
    """Adapters beside half precision: ratios of fresh samples are one up to float32's rounding."""
    config = halves(make_config, tmp_path)
    assert sampling_of(config).dtype_on("cuda", "float32") == "float32"
    engine, batch = engine_of(config)
    for _ in range(3):
        engine.update(weighted(batch, config), config.algo, config.correction, 3e-3)
    end = engine.weights(1)
    model, tokenizer = load_policy(cast(PretrainedModel, config.model), None, 0)
    load_weights(model, end)
    fresh = sampled(config, model, tokenizer, greedy=False)
    gap_BT = (engine.logp(fresh, end) - fresh.behavior_logp_BT) * fresh.mask_BT
    assert float(gap_BT.abs().max()) < 1e-4
    saved = tmp_path / "saved"
    save_policy(model, tokenizer, saved)
    whole = load_policy(PretrainedModel("mine", str(saved)), None, 0)[0]
    assert all(torch.equal(whole.get_parameter(n), tensor) for n, tensor in end.state.items())


def test_a_generator_in_half_precision_is_found_to_lose_updates(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = halves(make_config, tmp_path, "generator.dtype=bfloat16")
    engine, batch = engine_of(config)
    done = engine.update(weighted(batch, config), config.algo, config.correction, 1e-6)
    lines: list[str] = []
    log = RoundWarnings(lambda *_: None, config, lines.append)
    for round_ in range(2):
        log({"update/adapters_kept": done.metrics["adapters_kept"]}, round_)
    (line,) = lines
    assert "generator.dtype=float32" in line and done.metrics["adapters_kept"] < 0.5


def test_what_rounding_leaves_of_an_update_by_hand() -> None:
    """bfloat16 has steps of 2 ** -7 at one: an eighth of one is lost there, and not at 2 ** -4."""
    model = model_of("Llama")
    with_adapters(model, Lora(rank=1, alpha=1.0, targets=["k_proj"]), seed=1)
    for layer in model.model.layers:
        proj = layer.self_attn.k_proj
        proj.base_layer.weight.data.fill_(1.0)
        proj.base_layer.weight.data[:2] = 2**-4
        proj.lora_A.default.weight.data.fill_(2**-10)
        proj.lora_B.default.weight.data.fill_(1.0)
        proj.lora_B.default.weight.data[-1] = 0.0
    assert kept_share(model, torch.float32) == 1.0
    # Two rows of eight, one of which has no update.
    assert kept_share(model, torch.bfloat16) == pytest.approx(2 / 7)


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
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        one, other = (folder / "policy" / name for folder in (whole, cut))
        assert one.read_bytes() == other.read_bytes()


def test_stages_before_the_run_do_not_depend_on_its_adapters(make_config: MakeConfig) -> None:
    plain, adapted = (
        Artifacts(make_config("sft.steps=4", f"model.lora_rank={rank}"), Console(quiet=True))
        for rank in (0, 4)
    )
    config = make_config("model.lora_rank=4")
    assert isinstance(config.model, ScratchModel)
    assert adapted.sft(config.model).folder == plain.sft(config.model.whole).folder
