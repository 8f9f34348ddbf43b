"""Models of images too: their text part is the policy, with sizes in `text_config`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AlignConfig,
    AutoModelForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
)

from rlhf_lab.experiment.planning.layouts.shapes import read_shape
from rlhf_lab.models.causal_lm import load_policy, policy_shape, text_config
from rlhf_lab.models.options import PretrainedModel, Tying
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from, save_reward_model
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.errors import UserError
from tests.support.adapter_folders import require_read_back
from tests.support.examples import call

pytestmark = pytest.mark.usefixtures("costly")

TEXT = {
    **{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 8},
    "max_position_embeddings": 512,
}
VISION = {
    **{"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1},
    **{"num_attention_heads": 2, "image_size": 28, "patch_size": 14},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A random Gemma 3 of text and images, as those of 4B to 27B are."""
    tokenizer = TldrNano().tokenizer()
    size = len(tokenizer) + 3
    ids = {"boi_token_index": size - 3, "eoi_token_index": size - 2, "image_token_index": size - 1}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    text = {**TEXT, **ends, "vocab_size": size}
    config = Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4, **ids)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        Gemma3ForConditionalGeneration(config).save_pretrained(tmp_path / "gemma")
    tokenizer.save_pretrained(tmp_path / "gemma")
    return tmp_path / "gemma"


@pytest.mark.parametrize("tying", [Tying.as_saved, Tying.untied])
def test_the_policy_is_the_text_part(folder: Path, tmp_path: Path, tying: Tying) -> None:
    options = PretrainedModel("x", str(folder), tie_embeddings=tying)
    policy, tokenizer = load_policy(options, None, seed=0)
    whole = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokens = torch.arange(3, 23).unsqueeze(0)
    with torch.inference_mode():
        logits = policy(tokens).logits
        assert torch.equal(logits, whole(tokens).logits)
    names = {name: tensor.shape for name, tensor in policy.named_parameters()}
    assert not any("vision" in name for name in names)
    assert names == {name: t.shape for name, t in policy_shape(options, None).named_parameters()}
    policy.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    with torch.inference_mode():
        assert torch.equal(again(tokens).logits, logits)
    judge = reward_model_from(policy, seed=1)
    save_reward_model(judge, tokenizer, tmp_path / "judge", 0.5)
    assert load_reward_model(str(tmp_path / "judge"))[2] == 0.5


def test_adapters_are_beside_the_text_part(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="pip install 'rlhf-lab[lora]'")
    require_read_back(PretrainedModel("x", str(folder)), tmp_path / "adapters")


def test_its_shape_is_known_without_weights(folder: Path) -> None:
    shape = read_shape(str(folder), "model.path")
    assert (shape.layers, shape.hidden, shape.head_size) == (2, 32, 16)


def test_it_trains_with_values_and_checkpoints_and_saves_a_policy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["debug=tiny", "mode=async", "mode.executor=inline", "eval=none", "algo=ppo"]
    given += ["model=pretrained", f"model.path={folder}", "reward=task_rule", "checkpoint.rounds=1"]
    given += [f"output.cache={tmp_path}/cache", f"output.dir={tmp_path}/run"]
    assert call("train", *given, monkeypatch=monkeypatch) == 0
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "policy")
    assert saved.config.model_type == "gemma3_text"


def test_a_model_whose_text_has_no_language_model_is_refused() -> None:
    with pytest.raises(UserError, match=r"model.path=here: .*align.* pass model.path="):
        text_config(AlignConfig(), "here", "model.path")
