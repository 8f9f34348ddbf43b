"""Device options: what auto means, and that a device which is not there is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from rlhf_lab.experiment.rules.devices import check_devices, check_kernels
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.devices import check_name, chosen, release_unused
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.models.reward_model import reward_model_from, save_reward_model
from rlhf_lab.rewards.model import ModelScorer, device_for
from rlhf_lab.rewards.model_options import EnsembleReward, ModelReward
from rlhf_lab.rewards.options import RewardContext, build_scorer
from rlhf_lab.rewards.steps_options import StepsReward
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Group, Sample
from tests.conftest import MakeConfig
from tests.support.examples import group


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    count = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(("gpus", "found"), [(0, "cpu"), (2, "cuda")], indirect=["gpus"])
def test_auto_is_the_gpu_where_there_is_one(gpus: None, found: str) -> None:
    assert chosen("auto") == torch.device(found)


@pytest.mark.parametrize("gpus", [2], indirect=True)
@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:1"])
def test_a_named_device_is_taken_as_it_is(gpus: None, name: str) -> None:
    assert chosen(name) == torch.device(name)


@pytest.mark.parametrize(
    ("gpus", "name"), [(0, "cuda"), (0, "cuda:0"), (1, "cuda:1")], indirect=["gpus"]
)
def test_a_gpu_that_is_not_there_is_refused_with_its_key(gpus: None, name: str) -> None:
    with pytest.raises(UserError, match=rf"generator\.device={name}, but .* generator.device=cpu"):
        chosen(name, "generator.device")


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "auto "])
def test_a_name_that_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"engine\.device=.*choose auto, cpu, cuda"):
        check_name(name, "engine.device")


@pytest.mark.parametrize("gpus", [0, 1], indirect=True)
def test_what_torch_keeps_of_a_gpu_is_given_back(
    gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("emptied"))
    release_unused()
    assert len(calls) == torch.cuda.device_count()


PLACED = (
    ("reward=reward_model", "reward.device"),
    ("reward@judge=reward_model", "judge.device"),
    ("+reward@reward.terms.more=reward_model", "reward.terms.more.device"),
)


@pytest.mark.parametrize("gpus", [8], indirect=True)
@pytest.mark.parametrize(("option", "key"), PLACED)
def test_a_reward_model_takes_the_gpu_that_it_names(
    gpus: None, config_of: MakeConfig, option: str, key: str
) -> None:
    terms = ["reward=combined"] if "terms" in key else []
    check_devices(config_of(*terms, option, f"{key}=cuda:7"))
    with pytest.raises(UserError, match=rf"{key}=cuda:8, but torch .* sees 8 GPUs"):
        check_devices(config_of(*terms, option, f"{key}=cuda:8"))
    with pytest.raises(UserError, match=rf"kernels=portable with {key}=cuda:7"):
        on_cpu = ("engine.device=cpu", "generator.device=cpu", "kernels=portable")
        check_kernels(config_of(*terms, option, f"{key}=cuda:7", *on_cpu))


@pytest.mark.parametrize("gpus", [8], indirect=True)
def test_without_a_name_it_runs_with_the_generator(gpus: None) -> None:
    context = RewardContext(TldrNano(), None, (), 1, 8, Path(), torch.device("cuda:3"))
    assert device_for(ModelReward(), context) == torch.device("cuda:3")
    assert device_for(ModelReward(device="cuda:7"), context) == torch.device("cuda:7")
    assert device_for(StepsReward(path="x", device="cpu"), context) == torch.device("cpu")


def test_scores_are_those_of_the_device_that_auto_takes(tmp_path: Path) -> None:
    tokenizer = TldrNano().tokenizer()
    policy, _ = load_policy(ScratchModel("tiny", 16, 1, 2), tokenizer, seed=3)
    save_reward_model(reward_model_from(policy, 4), tokenizer, tmp_path, offset=0.25)
    context = RewardContext(TldrNano(), tokenizer, [str(tmp_path)] * 2, 1, 8, tmp_path)
    groups = [group(0, [[-1.0], [-1.0, -2.0, -0.5]], [])]
    for kind in (ModelReward(), EnsembleReward(members=2)):
        found = [
            build_scorer(replace(kind, device=name), context).score(groups)
            for name in ("auto", "cpu")
        ]
        assert found[0] == found[1]


@pytest.mark.gpu
def test_reward_models_on_a_gpu_score_as_on_the_cpu() -> None:
    config = transformers.LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=1,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForSequenceClassification(config).eval()
    groups = [group(0, [[-1.0], [-1.0, -2.0, -0.5]], [])]

    def read(_: Group, sample: Sample) -> list[int]:
        return [1, 2, *sample.tokens]

    scores = [
        ModelScorer(model, 0.0, ModelReward(), read, 1, device).score(groups)[0]
        for device in (torch.device("cpu"), chosen("cuda"))
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
