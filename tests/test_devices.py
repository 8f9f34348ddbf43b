"""Device options: what auto means, and that a device which is not there is refused."""

import pytest
import torch

from rlhf_lab.models.devices import check_name, chosen
from rlhf_lab.types import UserError


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
