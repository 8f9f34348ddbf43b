"""Models from folders: whole or refused, in the dtype and with the head and attention asked for."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.rules.models import check_precision
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.batching import collate
from rlhf_lab.models.causal_lm import load_policy, load_tokenizer, save_policy
from rlhf_lab.models.forward import response_output
from rlhf_lab.models.heads import is_tied
from rlhf_lab.models.loading import located
from rlhf_lab.models.options import Attention, PretrainedModel, Tying
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from, save_reward_model
from rlhf_lab.rewards.model import row_scores
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Prompt
from rlhf_lab.types.text_frame import TextFrame
from tests.conftest import MakeConfig
from tests.support.examples import FACTS

WEIGHTS = "model.safetensors"


def llama(tied: bool = True, **more: Any) -> Any:
    """A small random Llama in the vocabulary of the embedded task."""
    tokenizer = TldrNano().tokenizer()
    shape = {
        "vocab_size": len(tokenizer) + 3,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 128,
    }
    ends = {
        "bos_token_id": tokenizer.eos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = transformers.LlamaConfig(**{**shape, **ends, **more}, tie_word_embeddings=tied)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What save_pretrained makes of it."""
    save_policy(llama(), TldrNano().tokenizer(), tmp_path / "llama")
    return tmp_path / "llama"


def load(folder: Path, **options: Any) -> Any:
    return load_policy(PretrainedModel("x", str(folder), **options), None, seed=0)[0]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(torch.tensor([[5, 6, 7, 8]])).logits)


def refuse(folder: Path, complaint: str) -> None:
    """Both kinds of model refuse it, each with its own key."""
    with pytest.raises(UserError, match=rf"^model\.path={folder}.*{complaint}"):
        load(folder)
    with pytest.raises(UserError, match=rf"^reward\.path={folder}.*{complaint}"):
        load_reward_model(str(folder))


def test_a_folder_without_a_config_is_refused(folder: Path) -> None:
    (folder / "config.json").unlink()
    refuse(folder, "has no config.json: pass a folder made by save_pretrained")


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    refuse(folder, r"has no weights \(model.safetensors\)")


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path / "policy")
    with pytest.raises(UserError, match=r"^model.path=.*has no tokenizer that could be loaded"):
        load(tmp_path / "policy")
    with pytest.raises(UserError, match=r"^model.path=.*has no tokenizer that could be loaded"):
        load_tokenizer(PretrainedModel("x", str(tmp_path / "policy")), None)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.GPTNeoXConfig(vocab_size=50, intermediate_size=32, **shape)
    transformers.GPTNeoXForCausalLM(config).save_pretrained(tmp_path / "neox")
    with pytest.raises(UserError, match=r"has no tokenizer .*its vocabulary is empty"):
        load(tmp_path / "neox")
    reward_model_from(llama(), seed=1).save_pretrained(tmp_path / "reward")
    with pytest.raises(UserError, match=r"^reward.path=.*has no tokenizer that could be loaded"):
        load_reward_model(str(tmp_path / "reward"))


@pytest.mark.parametrize("kept", [0, 5, 1000])
def test_damaged_weights_are_refused(folder: Path, kept: int) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:kept])
    refuse(folder, r"is damaged .*pass .*=<local folder made by save_pretrained>")


def test_a_damaged_config_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    refuse(folder, "could not be loaded")


def test_weights_of_other_shapes_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    refuse(folder, "has weights of other shapes than its config.json says")


def test_weights_that_would_be_drawn_at_random_are_refused(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    refuse(folder, "holds no weights for model.layers.2.input_layernorm.weight, .*at random")
    head = llama(tied=False)
    save_reward_model(reward_model_from(head, 1), TldrNano().tokenizer(), tmp_path / "rm", 0.0)
    with pytest.raises(UserError, match=r"holds no weights for lm_head.weight.*as CausalLM"):
        load(tmp_path / "rm")


def test_tokens_beyond_the_embedding_are_refused(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(TldrNano().tokenizer())
    tokenizer.add_tokens([f"<new{number}>" for number in range(5)])
    last = len(tokenizer) - 1
    complaint = rf"has 2 tokens beyond the {last - 1} rows .*, up to '<new4>' = {last}"
    save_policy(llama(), tokenizer, tmp_path / "policy")
    with pytest.raises(UserError, match=rf"^model.path=.*{complaint}"):
        load(tmp_path / "policy")
    save_reward_model(reward_model_from(llama(), 1), tokenizer, tmp_path / "reward", 0.0)
    with pytest.raises(UserError, match=rf"^reward.path=.*{complaint}"):
        load_reward_model(str(tmp_path / "reward"))


def test_a_tokenizer_without_an_end_token_is_refused(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(TldrNano().tokenizer())
    tokenizer.eos_token = None
    save_policy(llama(), tokenizer, tmp_path)
    with pytest.raises(UserError, match=r"its tokenizer has no end token.*set eos_token"):
        load(tmp_path)


def test_the_proxys_model_is_named_by_its_own_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^proxy.path=.* has no config.json"):
        load_policy(PretrainedModel("x", str(tmp_path)), None, 0, "proxy.path")


def test_a_hub_name_may_carry_its_revision(tmp_path: Path) -> None:
    assert located("a/b") == ("a/b", {})
    assert located("a/b@main") == ("a/b", {"revision": "main"})
    assert located("a/b", "v1") == ("a/b", {"revision": "v1"})
    local = tmp_path / "mine@home"
    local.mkdir()
    assert located(str(local)) == (str(local), {})


def test_a_tied_head_can_be_untied_and_stays_so_on_disk(folder: Path, tmp_path: Path) -> None:
    saved, untied = load(folder), load(folder, tie_embeddings=Tying.untied)
    assert is_tied(saved) and not is_tied(untied)
    assert torch.equal(logits(saved), logits(untied))
    assert "lm_head.weight" in dict(untied.named_parameters())
    with torch.no_grad():
        untied.lm_head.weight.mul_(2.0)
    assert torch.equal(logits(untied), 2 * logits(saved)), "the embedding did not move with it"
    save_policy(untied, TldrNano().tokenizer(), tmp_path / "untied")
    again = load(tmp_path / "untied")
    assert not is_tied(again) and not again.config.tie_word_embeddings
    assert torch.equal(logits(again), logits(untied))


def test_a_head_that_equals_the_embedding_can_be_tied(folder: Path, tmp_path: Path) -> None:
    untied = load(folder, tie_embeddings=Tying.untied)
    save_policy(untied, TldrNano().tokenizer(), tmp_path / "untied")
    tied = load(tmp_path / "untied", tie_embeddings=Tying.tied)
    assert is_tied(tied) and torch.equal(logits(tied), logits(untied))
    save_policy(tied, TldrNano().tokenizer(), tmp_path / "tied")
    again = load(tmp_path / "tied")
    assert is_tied(again) and torch.equal(logits(again), logits(untied))


def test_a_trained_head_is_not_thrown_away(tmp_path: Path) -> None:
    save_policy(llama(tied=False), TldrNano().tokenizer(), tmp_path)
    assert not is_tied(load(tmp_path, tie_embeddings=Tying.untied))
    with pytest.raises(UserError, match=r"tie_embeddings=tied, but the head .* would be lost"):
        load(tmp_path, tie_embeddings=Tying.tied)


def test_weights_are_held_in_the_dtype_and_read_by_the_attention_asked_for(folder: Path) -> None:
    exact = load(folder)
    eager = load(folder, attention=Attention.eager)
    assert exact.config._attn_implementation == "sdpa"
    assert eager.config._attn_implementation == "eager"
    assert torch.allclose(logits(exact), logits(eager), atol=1e-5)
    half = load(folder, dtype="bfloat16")
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    assert torch.allclose(logits(half).float(), logits(exact), atol=0.05)


def test_attention_that_cannot_be_computed_is_refused(make_config: MakeConfig) -> None:
    flash = ("model=pretrained", "model.path=x", "model.attention=flash_attention_2")
    with pytest.raises(UserError, match=r"flash_attention_2 with model.dtype=float32"):
        make_config(*flash)
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UserError, match=r"needs .*a GPU.*pass model.attention=sdpa"):
        check(make_config(*flash, "model.dtype=bfloat16"))


def test_half_precision_is_trained_with_masters_only(make_config: MakeConfig) -> None:
    """Every engine has them, and the stage of reward models has not."""
    half = ("task=arithmetic", "model=pretrained", "model.path=x", "model.dtype=bfloat16")
    for engine in ("engine=single", "engine=fsdp", "model.lora_rank=4"):
        check_precision(make_config(*half, engine))
    proxy = (
        "reward=reward_model",
        "model@proxy=pretrained",
        "proxy.path=x",
        "proxy.dtype=bfloat16",
    )
    with pytest.raises(UserError, match=r"proxy\.dtype=bfloat16.*pass proxy\.dtype=float32"):
        check_precision(make_config(*proxy, "proxy.dtype=bfloat16"))


def test_a_model_brings_its_paper_proxy(make_config: MakeConfig) -> None:
    proxies = {
        name: make_config("task=tldr", f"model={name}").reward.path
        for name in ("pythia_160m", "pythia_2.8b", "qwen2.5_0.5b")
    }
    assert proxies == {
        "pythia_160m": "mnoukhov/pythia160m-rm-tldr6.9b",
        "pythia_2.8b": "mnoukhov/pythia2.8b-rm-tldr6.9b",
        "qwen2.5_0.5b": "",
    }
    other = make_config("task=tldr", "model=pythia_160m", "reward=paper_proxy_2.8b")
    assert other.reward.path == "mnoukhov/pythia2.8b-rm-tldr6.9b"
    chats = make_config("task=no_robots", "model=llama3.1_8b")
    assert chats.reward.path.endswith("@reward_modeling__1__1725760619")
    assert make_config("reward=paper_proxy").reward.path == "", "nano models have none"


@functools.cache
def padless() -> Any:
    """The tokenizer of the embedded task without its pad token, and with no other to take."""
    state = json.loads(TldrNano().tokenizer().backend_tokenizer.to_str())
    pad = TldrNano().tokenizer().pad_token
    for token in state["added_tokens"]:
        token["content"] = token["content"].replace(pad, "<unused>")
    vocab = state["model"]["vocab"]
    state["model"]["vocab"] = {k if k != pad else "<unused>": v for k, v in vocab.items()}
    rust = transformers.tokenization_utils_fast.TokenizerFast.from_str(json.dumps(state))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=rust, eos_token=TldrNano().tokenizer().eos_token
    )


def prompts_of(tokenizer: Any) -> tuple[Prompt, ...]:
    texts = ("the cat", "my brother just mailed my blender again .", "a")
    tokens = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    assert len({len(row) for row in tokens}) == 3, "so that two of the prompts are padded"
    return tuple(
        Prompt(place, row, Example(f"row/{place}", text, ""))
        for place, (row, text) in enumerate(zip(tokens, texts, strict=True))
    )


def test_without_a_pad_token_padding_is_masked_everywhere(tmp_path: Path) -> None:
    """N+ details 3 and 5: generation and log-probs are those of each prompt by itself."""
    save_policy(llama(), padless(), tmp_path)
    model, tokenizer = load_policy(PretrainedModel("x", str(tmp_path)), None, 0)
    assert tokenizer.pad_token_id is None
    assert TextFrame(tokenizer).pad == tokenizer.eos_token_id
    generator = HFGenerator(model, tokenizer, HFSampling(), 8, functools.partial(uniforms, 5))
    prompts, weights = prompts_of(tokenizer), Weights(0, dict(model.named_parameters()))
    together = generator.generate(weights, Chunk(0, 0, prompts, 2))
    alone = [generator.generate(weights, Chunk(0, 0, (prompt,), 2))[0] for prompt in prompts]
    pad = TextFrame(tokenizer).pad
    with torch.inference_mode():
        batched = response_output(model, collate(together, pad), 0.7).logp_BT
        for place, (mine, theirs) in enumerate(zip(together, alone, strict=True)):
            for row, (one, other) in enumerate(zip(mine.samples, theirs.samples, strict=True)):
                assert one.tokens == other.tokens
                assert one.logps == pytest.approx(other.logps, abs=1e-5)
                read = batched[2 * place + row, : len(one.tokens)].tolist()
                assert read == pytest.approx(one.logps, abs=1e-5)


def test_without_a_pad_token_a_reward_model_reads_the_last_real_token(tmp_path: Path) -> None:
    save_reward_model(reward_model_from(llama(), 1), padless(), tmp_path, 0.0)
    model, tokenizer, _ = load_reward_model(str(tmp_path))
    assert tokenizer.pad_token_id is None
    end = tokenizer.eos_token_id
    rows = [[5, 6, end], [5, 6, 7, 8, 9, end], [end, end], [5, 6]]
    with torch.inference_mode():
        own = [
            float(model.score(model.model(torch.tensor([r])).last_hidden_state[0, -1]))
            for r in rows
        ]
        assert row_scores(model, rows).tolist() == pytest.approx(own, abs=1e-5)
    assert len(set(own)) == 4


def test_a_folder_of_ones_own_is_trained(make_config: MakeConfig, tmp_path: Path) -> None:
    """A Llama whose tokenizer has no pad token, from save_pretrained to a policy that loads."""
    save_policy(llama(), padless(), tmp_path / "llama")
    config = make_config(
        "model=pretrained",
        f"model.path={tmp_path}/llama",
        "model.tie_embeddings=untied",
        "model.lora_rank=2",
        "model.lora_targets=[q_proj,lm_head]",
        "reward=task_rule",
        "mode=async",
        "run.updates=2",
        "optim.lr=1e-2",
    )
    run = lifecycle.train(config, Console(quiet=True), FACTS)
    before, after = load(tmp_path / "llama"), load(run / "policy")
    assert not is_tied(after)
    moved = {
        name
        for name, parameter in after.named_parameters()
        if name != "lm_head.weight" and not torch.equal(parameter, before.get_parameter(name))
    }
    assert moved == {f"model.layers.{n}.self_attn.q_proj.weight" for n in range(2)}
    assert not torch.equal(after.lm_head.weight, before.lm_head.weight)
