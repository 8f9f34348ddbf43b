"""Folders of peft as the policy: their base with the adapters merged in."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rlhf_lab.models.causal_lm import load_policy, load_tokenizer, policy_shape, save_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.errors import UserError
from tests.models.test_loading import llama
from tests.support.examples import call

pytest.importorskip("peft", reason="pip install 'rlhf-lab[lora]'")
pytestmark = pytest.mark.usefixtures("costly")

TOKENS = torch.arange(3, 23).unsqueeze(0)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    save_policy(llama(), TldrNano().tokenizer(), tmp_path / "base")
    return tmp_path / "base"


def adapters(base: Path, **options: Any) -> tuple[Path, torch.Tensor]:
    """The folder that peft makes of random adapters, and the logits of the adapted model."""
    from peft import LoraConfig, get_peft_model

    given = {"r": 2, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], **options}
    plain = AutoModelForCausalLM.from_pretrained(base)
    with warnings.catch_warnings(action="ignore"):  # of heads that are tied
        model = get_peft_model(plain, LoraConfig(**given)).eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(2)
        for name, weight in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                weight.normal_(std=0.3)
        logits = model(TOKENS).logits
        with warnings.catch_warnings(action="ignore"):
            model.save_pretrained(base.parent / "adapters")
    return base.parent / "adapters", logits


def config_with(folder: Path, **changes: Any) -> None:
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in config.items() if value != "gone"}))


def logits_of(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(TOKENS).logits
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_rslora": True, "rank_pattern": {"q_proj": 3}},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
    ],
)
def test_a_folder_of_adapters_is_its_base_with_them_merged_in(
    base: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    folder, logits = adapters(base, **options)
    plain, _ = load_policy(PretrainedModel("x", str(base)), None, seed=0)
    policy, tokenizer = load_policy(PretrainedModel("x", str(folder)), None, seed=0)
    assert torch.allclose(logits_of(policy), logits, atol=1e-4)
    assert not torch.allclose(logits_of(plain), logits, atol=1e-2)
    assert {n for n, _ in plain.named_parameters()} <= {n for n, _ in policy.named_parameters()}
    assert all(weight.requires_grad for weight in policy.parameters())
    assert type(policy) is type(plain)
    save_policy(policy, tokenizer, tmp_path / "saved")
    again, _ = load_policy(PretrainedModel("x", str(tmp_path / "saved")), None, seed=0)
    assert torch.equal(logits_of(again), logits_of(policy))


def test_it_is_rounded_once_and_known_without_weights(base: Path) -> None:
    folder, _ = adapters(base)
    exact, _ = load_policy(PretrainedModel("x", str(folder)), None, seed=0)
    options = PretrainedModel("x", str(folder), dtype="bfloat16")
    half, _ = load_policy(options, None, seed=0)
    for one, other in zip(exact.parameters(), half.parameters(), strict=True):
        assert torch.equal(one.bfloat16(), other)
    shapes = {name: weight.shape for name, weight in policy_shape(options, None).named_parameters()}
    assert shapes == {name: weight.shape for name, weight in half.named_parameters()}


def test_a_tokenizer_of_its_own_comes_first(base: Path) -> None:
    folder, _ = adapters(base)
    given = PretrainedModel("x", str(folder))
    assert load_tokenizer(given, None).chat_template is None
    own = load_tokenizer(given, None)
    own.chat_template = "{{ messages }}"
    own.save_pretrained(folder)
    assert load_tokenizer(given, None).chat_template == "{{ messages }}"


@pytest.mark.parametrize("name", ["", None, "gone"])
def test_adapters_without_a_base_are_refused(base: Path, name: str | None) -> None:
    folder, _ = adapters(base)
    config_with(folder, base_model_name_or_path=name)
    with pytest.raises(UserError, match=r"^model.path=.*no base_model_name_or_path"):
        load_policy(PretrainedModel("x", str(folder)), None, seed=0)


def test_a_base_that_is_not_there_is_refused_with_its_key(base: Path) -> None:
    folder, _ = adapters(base)
    config_with(folder, base_model_name_or_path="no/base")
    with pytest.raises(UserError, match=r"^model.path=.*: base_model_name_or_path=no/base"):
        load_policy(PretrainedModel("x", str(folder)), None, seed=0)


def test_adapters_that_do_not_fit_are_refused(base: Path) -> None:
    folder, _ = adapters(base)
    given = PretrainedModel("x", str(folder))
    file = folder / "adapter_model.safetensors"
    weights = load_file(file)
    name = next(iter(weights))
    for changed in (
        {key: weight for key, weight in weights.items() if key != name},
        {**weights, name.replace("layers.0", "layers.9"): weights[name].clone()},
        {**weights, name: torch.ones(2, 2)},
        {**weights, name: weights[name] / 0},
    ):
        save_file(changed, file)
        with pytest.raises(UserError, match=r"^model.path=.*adapters"):
            load_policy(given, None, seed=0)
    file.write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"^model.path=.*adapters"):
        load_policy(given, None, seed=0)
    save_file(weights, file)
    config_with(folder, peft_type="NO_SUCH")
    with pytest.raises(UserError, match=r"^model.path=.*adapters"):
        load_policy(given, None, seed=0)


def test_without_peft_they_are_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = adapters(base)
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^model.path=.*package peft.*rlhf-lab\[lora\]"):
        load_policy(PretrainedModel("x", str(folder)), None, seed=0)


def test_a_run_starts_from_adapters(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = adapters(base)
    given = ["debug=tiny", "mode=sync", "eval=none", "algo=grpo", "run.updates=1"]
    given += ["model=pretrained", f"model.path={folder}", "reward=task_rule"]
    given += [f"output.cache={tmp_path}/cache", f"output.dir={tmp_path}/run"]
    assert call("train", *given, monkeypatch=monkeypatch) == 0
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert row["kl/sampled_reference_k1"] == pytest.approx(0, abs=1e-4), "merged as reference too"
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy") is not None
