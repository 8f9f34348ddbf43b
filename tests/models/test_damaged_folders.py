"""A model's folder is loaded whole, or refused in one line before anything is trained."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, modeling_utils

from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.causal_lm import load_policy, policy_shape, require_savable, save_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from, save_reward_model
from rlhf_lab.models.sampling import GenerationSettings
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.models.test_loading import llama, load
from tests.support.examples import FACTS

WEIGHTS = "model.safetensors"
Change = Callable[[Path], object]
CONTRADICTIONS: dict[str, dict[str, Any]] = {
    # Llama 2 chat's.
    "temperature": {"temperature": 0.9, "top_p": 0.6},
    "beams": {"early_stopping": True, "length_penalty": 0.5},
    "cut": {"do_sample": False, "top_k": 7, "min_p": 0.1},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_policy(llama(), TldrNano().tokenizer(), tmp_path / "llama")
    return tmp_path / "llama"


def put(folder: Path, file: str = "config.json", **changes: Any) -> None:
    path = folder / file
    found = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(found | changes))


def test_saving_does_without_deepspeed_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    model, tokenizer, unwrap = llama(), TldrNano().tokenizer(), modeling_utils.unwrap_model
    save_policy(model, tokenizer, tmp_path / "policy")
    save_reward_model(reward_model_from(model, 1), tokenizer, tmp_path / "reward", 0.0)
    assert modeling_utils.unwrap_model is unwrap


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_model_whose_generation_config_contradicts_itself_is_trained_and_saved(
    make_config: MakeConfig, folder: Path, name: str
) -> None:
    put(folder, "generation_config.json", **CONTRADICTIONS[name])
    config = make_config(
        "model=pretrained", f"model.path={folder}", "reward=task_rule", "run.updates=1",
        "generator.temperature=0.8", "algo=rloo",
    )  # fmt: skip
    run = lifecycle.train(config, Console(quiet=True), FACTS)
    saved = GenerationConfig.from_pretrained(run / "policy")
    saved.validate(strict=True)
    kept = (saved.do_sample, saved.temperature, saved.top_k, saved.top_p)
    assert kept == (True, 0.8, 0, 1.0)
    assert saved.eos_token_id == TldrNano().tokenizer().eos_token_id
    load(run / "policy")


def test_a_stage_keeps_the_settings_that_its_model_came_with(folder: Path, tmp_path: Path) -> None:
    put(folder, "generation_config.json", do_sample=True, temperature=0.6)
    model, tokenizer = load_policy(PretrainedModel("x", str(folder)), None, 0)
    save_policy(model, tokenizer, tmp_path / "again")
    assert GenerationConfig.from_pretrained(tmp_path / "again").temperature == 0.6
    put(folder, "generation_config.json", do_sample=False)
    model, tokenizer = load_policy(PretrainedModel("x", str(folder)), None, 0)
    save_policy(model, tokenizer, tmp_path / "plain")
    assert not GenerationConfig.from_pretrained(tmp_path / "plain").temperature


def test_what_could_not_be_saved_at_the_end_is_refused_at_the_start(folder: Path) -> None:
    model, tokenizer = load_policy(PretrainedModel("x", str(folder)), None, 0)
    require_savable(model, tokenizer, "llama", GenerationSettings(0.7, 8))
    model.config.odd = object()
    with pytest.raises(UserError, match=r"^model.path=llama: transformers would not save"):
        require_savable(model, tokenizer, "llama", GenerationSettings(0.7, 8))


CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "a billion layers": ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000, which needs"),
    "a thousand layers": ({"num_hidden_layers": 10**5}, "which needs 3200000 weights or more"),
    "no layers": ({"num_hidden_layers": 0}, "num_hidden_layers=0, which must be a whole number"),
    "a negative vocabulary": ({"vocab_size": -5}, "vocab_size=-5, which must be"),
    "a huge vocabulary": ({"vocab_size": 10**12}, "vocab_size=1000000000000, which needs"),
    "a vocabulary beyond words": ({"vocab_size": 10**40}, "which must be a whole number"),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads=0, which must be"),
    "text for a number": ({"hidden_size": "32"}, "hidden_size=32, which must be"),
    "a fraction": ({"hidden_size": 32.5}, "hidden_size=32.5, which must be"),
    "a list for a number": ({"intermediate_size": [64]}, r"intermediate_size=\[64\], which must"),
    "true for a number": ({"num_hidden_layers": True}, "num_hidden_layers=True, which must be"),
    "heads that do not divide": ({"num_attention_heads": 5, "head_dim": None}, ""),
    "an unknown dtype": ({"dtype": "float99"}, "float99"),
    "an unknown activation": ({"hidden_act": "odd"}, "could not be loaded"),
    "an unknown family": ({"model_type": "odd"}, "could not be loaded"),
    "no family": ({"model_type": None}, "could not be loaded"),
    "a number as family": ({"model_type": 5}, "could not be loaded"),
    "a package that is absent": (
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
        "could not be loaded",
    ),
    "a quantization that is none": ({"quantization_config": [1]}, "could not be loaded"),
    "positions that are none": ({"rope_parameters": {"rope_type": "odd"}}, "could not be loaded"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_cannot_be_is_refused_at_once(folder: Path, name: str) -> None:
    changes, expected = CONFIGS[name]
    put(folder, **changes)
    began = time.process_time()
    with pytest.raises(UserError, match=rf"^model\.path={folder}.*{expected}") as refused:
        load(folder)
    assert time.process_time() - began < 60 and len(str(refused.value).splitlines()) == 1
    if "=" in expected:
        with pytest.raises(UserError, match=expected):
            policy_shape(PretrainedModel("x", str(folder)), None)


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "[" * 10**5, "\xff", '{"a": "\\ud800"}'])
def test_a_config_that_is_none_is_refused_with_its_file(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=rf"^model\.path={folder}.*config.json.*pass a folder"):
        load(folder)


@pytest.mark.parametrize("tokens", [[2, 3], [], "x", -7, 10**9, None])
def test_end_tokens_of_any_kind_join_the_tokenizers_or_are_refused(
    folder: Path, tmp_path: Path, tokens: Any
) -> None:
    """A list of them is common, and another kind refused."""
    put(folder, eos_token_id=tokens)
    put(folder, "generation_config.json", eos_token_id=tokens)
    try:
        model, tokenizer = load_policy(PretrainedModel("x", str(folder)), None, 0)
        require_savable(model, tokenizer, str(folder), GenerationSettings(0.7, 8))
    except UserError as error:
        assert len(str(error).splitlines()) == 1 and not isinstance(tokens, list | None)
        return
    save_policy(model, tokenizer, tmp_path / "saved", GenerationSettings(0.7, 8))
    saved = GenerationConfig.from_pretrained(tmp_path / "saved")
    ends = [tokenizer.eos_token_id, *(tokens if isinstance(tokens, list) else ())]
    assert saved.eos_token_id == (ends if len(ends) > 1 else ends[0])
    load(tmp_path / "saved")


class Malicious:
    """Would make a folder if it were unpickled by pickle's own rules."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)

    def __init__(self, path: str) -> None:
        self.path = path


def as_pickle(folder: Path, what: Any) -> None:
    (folder / WEIGHTS).unlink()
    torch.save(what, folder / "pytorch_model.bin")


def test_a_malicious_pickle_is_refused_and_never_run(folder: Path) -> None:
    as_pickle(folder, {"x": Malicious(str(folder / "made"))})
    with pytest.raises(UserError, match=r"a pickle that holds more than tensors.*safetensors"):
        load(folder)
    plain = pickle.dumps(Malicious(str(folder / "made")))
    for data in (plain, b"", b"rubbish" * 99, b"\x80\x04" + b"\xff" * 99):
        (folder / "pytorch_model.bin").write_bytes(data)
        with pytest.raises(UserError, match=rf"^model\.path={folder}"):
            load(folder)
    assert not (folder / "made").exists()


def test_weights_that_are_not_finite_are_refused(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["model.norm.weight"][3] = float("nan")
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(UserError, match=r"has weights in model.norm.weight that are NaN"):
        load(folder)
    model = reward_model_from(llama(), 1)
    model.score.weight.data[:] = float("inf")
    save_reward_model(model, TldrNano().tokenizer(), tmp_path / "reward", 0.0)
    with pytest.raises(UserError, match=r"^reward.path=.*has weights in score.weight"):
        load_reward_model(str(tmp_path / "reward"))


@pytest.mark.parametrize("offset", ["x", None, [1], "NaN"])
def test_an_offset_that_is_no_number_is_refused(tmp_path: Path, offset: Any) -> None:
    save_reward_model(reward_model_from(llama(), 1), TldrNano().tokenizer(), tmp_path, 0.0)
    put(tmp_path, reward_offset=offset)
    with pytest.raises(UserError, match=r"^reward.path=.*reward_offset.*no number"):
        load_reward_model(str(tmp_path))


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path, max_shard_size="20KB")
    TldrNano().tokenizer().save_pretrained(tmp_path)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 1
    load(tmp_path)
    kept = shards[1].read_bytes()
    shards[1].unlink()
    with pytest.raises(UserError, match=rf"^model\.path={tmp_path}.*{shards[1].name}"):
        load(tmp_path)
    shards[1].write_bytes(kept)
    index = tmp_path / "model.safetensors.index.json"
    for text in ("", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 1}}'):
        index.write_text(text)
        with pytest.raises(UserError, match=rf"^model\.path={tmp_path}"):
            load(tmp_path)


TOKENIZERS: dict[str, Change] = {
    "cut": lambda folder: cut(folder / "tokenizer.json"),
    "empty": lambda folder: (folder / "tokenizer.json").write_text(""),
    "list": lambda folder: (folder / "tokenizer.json").write_text("[]"),
    "vocabulary": lambda folder: put(folder, "tokenizer.json", model={"type": "WordLevel"}),
    "settings": lambda folder: (folder / "tokenizer_config.json").write_text("[1]"),
    "class": lambda folder: put(folder, "tokenizer_config.json", tokenizer_class="Odd", x=1),
    "end": lambda folder: put(folder, "tokenizer_config.json", eos_token=[1]),
    "length": lambda folder: put(folder, "tokenizer_config.json", model_max_length="x"),
}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_damaged_tokenizer_is_refused_in_one_line(folder: Path, name: str) -> None:
    TOKENIZERS[name](folder)
    try:
        load(folder)
    except UserError as error:
        assert str(error).startswith(f"model.path={folder}")
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize("place", [0, 7, 8, 40, 300, -1])
def test_a_changed_byte_of_weights_is_no_traceback(folder: Path, place: int) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[place] ^= 0xFF
    (folder / WEIGHTS).write_bytes(data)
    try:
        load(folder)
    except UserError as error:
        assert str(error).startswith(f"model.path={folder}")
        assert len(str(error).splitlines()) == 1
