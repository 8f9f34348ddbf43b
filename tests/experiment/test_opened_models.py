"""Reward models and judges are opened before the first step: what of them cannot be read is refused
with the key that names it, whichever command starts."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers
from safetensors.torch import load_file, save_file

from rlhf_lab.cli.launch import require_startable
from rlhf_lab.experiment.build.vocabulary import require_known_prompts
from rlhf_lab.experiment.rules.checks import require_working_parts
from rlhf_lab.models.loading import weight_names
from rlhf_lab.models.reward_model import load_reward_model, open_reward_model
from rlhf_lab.rewards.model_options import ModelReward
from rlhf_lab.rewards.options import RewardContext, build_scorer
from rlhf_lab.runs.jsonl import write_rows
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.examples import call
from tests.training.test_reward_model import SHAPE, saved

Damage = Callable[[Path], str]


def no_hub_name(folder: Path) -> str:
    return "nobody/has-this-model"


def no_folder(folder: Path) -> str:
    return str(folder / "absent")


def no_config(folder: Path) -> str:
    (saved(folder, "Llama", 1) / "config.json").unlink()
    return str(folder)


def no_tokenizer(folder: Path) -> str:
    saved(folder, "Llama", 1)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    return str(folder)


def no_head(folder: Path) -> str:
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).save_pretrained(folder)
    TldrNano().tokenizer().save_pretrained(folder)
    return str(folder)


def no_head_in_parts(folder: Path) -> str:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    model.save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").exists()
    TldrNano().tokenizer().save_pretrained(folder)
    return str(folder)


def no_embedding(folder: Path) -> str:
    tokenizer = copy.deepcopy(TldrNano().tokenizer())
    tokenizer.add_tokens([f"<new{number}>" for number in range(300)])
    return str(saved(folder, "Llama", 1, tokenizer))


def no_label(folder: Path) -> str:
    return str(saved(folder, "Llama", 2))


def no_whole_weights(folder: Path) -> str:
    file = saved(folder, "Llama", 1) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    return str(folder)


def adapters_alone(folder: Path) -> str:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "x/y"}))
    return str(folder)


# What is wrong, and what the refusal says of it.
DAMAGES: dict[Damage, str] = {
    no_hub_name: "hub",
    no_folder: "no such folder",
    no_config: "config.json",
    no_tokenizer: ".tokenizer=",
    no_head: "score.weight",
    no_head_in_parts: "score.weight",
    no_embedding: "embedding",
    no_label: ".label=-1",
    no_whole_weights: "damaged",
    adapters_alone: "merge",
}
# Where a model of this path is named, and the key that names it.
PLACES = {
    "reward.path": "reward=reward_model reward.path={}",
    "reward.paths": "reward=ensemble reward.paths=[{},{}]",
    "reward.terms.more.path": (
        "reward=combined +reward@reward.terms.more=reward_model reward.terms.more.path={}"
    ),
    "judge.path": "reward@judge=reward_model judge.path={}",
}
SHORT = ("debug=tiny", "task=arithmetic", "algo=rloo", "reward=task_rule")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def at(key: str, path: str) -> list[str]:
    return PLACES[key].format(path, path).split()


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_model_that_cannot_score_is_refused_wherever_it_is_named(
    config_of: MakeConfig, tmp_path: Path, damage: Damage
) -> None:
    path = damage(tmp_path / "model")
    for key in PLACES:
        config = config_of("task=arithmetic", *at(key, path))
        with pytest.raises(UserError) as refusal:
            require_working_parts(config)
        text = str(refusal.value)
        assert f"{key}={path}" in text, text
        assert DAMAGES[damage] in text and "pass " in text, text
        node = key.removesuffix("s").removesuffix("path")
        assert all(word.startswith(node) for word in text.split() if word.startswith("reward."))


@pytest.mark.parametrize("damage", [no_hub_name, no_folder, no_config, no_tokenizer])
def test_the_start_of_a_proxy_is_opened_too(
    config_of: MakeConfig, tmp_path: Path, damage: Damage
) -> None:
    path = damage(tmp_path / "model")
    config = config_of("reward=reward_model", "model@proxy=pretrained", f"proxy.path={path}")
    with pytest.raises(UserError, match=f"^proxy\\.path={path}.*pass "):
        require_working_parts(config)


@pytest.mark.parametrize("key", PLACES)
def test_a_model_that_can_score_is_opened(config_of: MakeConfig, tmp_path: Path, key: str) -> None:
    path = str(saved(tmp_path / "model", "Llama", 1))
    require_working_parts(config_of("task=arithmetic", *at(key, path)))


@pytest.mark.parametrize("key", [*PLACES, "model.path"])
def test_a_model_that_does_not_know_the_prompts_is_refused_by_its_key(
    config_of: MakeConfig, tmp_path: Path, key: str
) -> None:
    path = str(saved(tmp_path / "model", "Llama", 1))
    named = ["model=pretrained", f"model.path={path}"] if key == "model.path" else at(key, path)
    lines: list[str] = []
    require_known_prompts(config_of("task=tldr_nano", *named), lines.append)
    with pytest.raises(UserError, match=rf"^{key}={path} with task=arithmetic.* 100% .*pass "):
        require_known_prompts(config_of("task=arithmetic", *named), lines.append)
    assert not lines


@pytest.mark.parametrize(("unknown", "share"), [(0, ""), (1, "10%"), (4, "40%"), (5, "refused")])
def test_some_unknown_tokens_are_warned_of_and_many_refused(
    config_of: MakeConfig, tmp_path: Path, unknown: int, share: str
) -> None:
    words = TldrNano().tokenizer()
    known = words.decode([words.vocab_size - 1])
    prompt = " ".join(["zyx"] * unknown + [known] * (10 - unknown))
    write_rows(tmp_path / "rows.jsonl", [{"prompt": prompt}] * 3)
    path = saved(tmp_path / "model", "Llama", 1)
    named = ("model=pretrained", f"model.path={path}")
    config = config_of("task=prompts", f"task.path={tmp_path / 'rows.jsonl'}", *named)
    lines: list[str] = []
    if share == "refused":
        with pytest.raises(UserError, match=r"^model\.path="):
            require_known_prompts(config, lines.append)
    else:
        require_known_prompts(config, lines.append)
    assert [share in line for line in lines] == ([True] if share.endswith("%") else [])


@pytest.mark.parametrize("command", ["train", "pipeline", "train -m seed=1,2"])
def test_no_command_starts_a_run_with_a_judge_that_is_not_there(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    name, *more = command.split()
    root = f"output.root={tmp_path / 'runs'}"
    overrides = [*more, *SHORT, *at("judge.path", "./absent"), root]
    assert call(name, *overrides, monkeypatch=monkeypatch) == 2
    assert "judge.path=./absent" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/**/manifest.json"))


def test_nothing_is_launched_with_a_judge_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"judge\.path=\./absent"):
        require_startable([*SHORT, *at("judge.path", "./absent")], 1, here=True)


def test_a_tokenizer_may_be_elsewhere(config_of: MakeConfig, tmp_path: Path) -> None:
    path = no_tokenizer(tmp_path / "model")
    TldrNano().tokenizer().save_pretrained(tmp_path / "words")
    words = str(tmp_path / "words")
    for key in PLACES:
        node = key.rpartition(".")[0]
        config = config_of("task=arithmetic", *at(key, path), f"{node}.tokenizer={words}")
        require_working_parts(config)
    model, tokenizer, _ = load_reward_model(path, "judge.path", words)
    opened, again = open_reward_model(path, "judge.path", words)
    assert tokenizer.get_vocab() == again.get_vocab() == TldrNano().tokenizer().get_vocab()
    assert opened.config.num_labels == model.config.num_labels
    assert opened.get_input_embeddings().weight.is_meta, "no weights were read"
    context = RewardContext(TldrNano(), TldrNano().tokenizer(), (), 1, 24, tmp_path)
    build_scorer(ModelReward(path=path, tokenizer=words), context)


def test_a_tokenizer_that_is_not_there_is_refused_by_its_own_key(
    config_of: MakeConfig, tmp_path: Path
) -> None:
    path = str(saved(tmp_path / "model", "Llama", 1))
    config = config_of("task=arithmetic", *at("judge.path", path), "judge.tokenizer=./absent")
    with pytest.raises(UserError, match=r"^judge\.tokenizer=\./absent .*pass judge\.tokenizer="):
        require_working_parts(config)
    with pytest.raises(UserError, match=r"reward\.tokenizer=x .*without reward\.path"):
        ModelReward(tokenizer="x")


def test_names_of_weights_are_read_without_the_weights(tmp_path: Path) -> None:
    single = saved(tmp_path / "single", "Bert", 1)
    names = set(load_file(single / "model.safetensors"))
    assert weight_names(str(single), {}) == names
    model = transformers.AutoModelForSequenceClassification.from_pretrained(single)
    model.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert weight_names(str(tmp_path / "parts"), {}) == names
    (single / "model.safetensors").unlink()
    (single / "pytorch_model.bin").write_bytes(b"")
    assert weight_names(str(single), {}) is None


def test_a_head_under_another_prefix_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path, "Llama", 1)
    weights = load_file(path / "model.safetensors")
    renamed = {f"module.{name}": weight for name, weight in weights.items()}
    save_file(renamed, path / "model.safetensors", {"format": "pt"})
    open_reward_model(str(path), "judge.path")


def test_the_reader_of_weights_refuses_the_same(tmp_path: Path) -> None:
    for damage in (no_folder, no_config, no_tokenizer, no_head, no_embedding, no_whole_weights):
        path = damage(tmp_path / damage.__name__)
        with pytest.raises(UserError, match=r"judge\.path="):
            load_reward_model(path, "judge.path")
