"""Device options: what auto means, and that a device which is not there is refused."""

import pytest
import torch
import transformers

from rlhf_lab.models.devices import check_name, chosen, release_unused
from rlhf_lab.rewards.model import ModelScorer
from rlhf_lab.rewards.model_options import ModelReward
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Group, Sample
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


@pytest.mark.parametrize("name", ["", "gpu", "mps", "cuda:", "cuda:x", "auto "])
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
