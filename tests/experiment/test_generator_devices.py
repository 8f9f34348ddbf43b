"""Which GPU each generator takes."""

from __future__ import annotations

import pytest
import torch

from rlhf_lab.experiment.build.rollout import config_of_each
from rlhf_lab.experiment.rules import devices as checks_devices
from rlhf_lab.experiment.rules.derived import generator_devices, num_gpus
from rlhf_lab.experiment.rules.devices import check_devices, idle_cores
from rlhf_lab.rollout.generators.vllm.make import visible_gpus
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig


def of_gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize(
    ("gpus", "trainer", "generator", "count", "expected", "held"),
    [
        (1, "auto", "auto", 1, ["auto"], 1),
        (2, "auto", "auto", 1, ["cuda:1"], 2),
        (2, "cuda:1", "auto", 1, ["cuda:0"], None),
        (4, "auto", "auto", 3, ["cuda:1", "cuda:2", "cuda:3"], 4),
        (3, "auto", "auto", 3, ["auto", "auto", "auto"], 1),
        (4, "auto", "cuda:2", 2, ["cuda:2", "cuda:3"], 3),
        (4, "auto", "cuda", 2, ["cuda", "cuda"], 1),
        (4, "auto", "cpu", 2, ["cpu", "cpu"], 1),
        (2, "cpu", "auto", 2, ["cuda:0", "cuda:1"], None),
    ],
)
def test_generators_take_gpus_of_their_own(
    config_of: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    trainer: str,
    generator: str,
    count: int,
    expected: list[str],
    held: int | None,
) -> None:
    of_gpus(monkeypatch, gpus)
    devices = (f"engine.device={trainer}", f"generator.device={generator}")
    config = config_of("mode=async", f"mode.num_generators={count}", *devices)
    assert generator_devices(config) == expected
    assert [one.generator.device for one in config_of_each(config)] == expected
    if held is not None:
        assert num_gpus(config) == held


def test_a_generator_without_a_gpu_is_refused(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_gpus(monkeypatch, 3)
    config = config_of("mode=async", "mode.num_generators=2", "generator.device=cuda:2")
    with pytest.raises(
        UserError, match=r"cuda:2 to cuda:3, and torch sees 3 GPUs here; pass a smaller"
    ):
        check_devices(config)


def test_a_generator_of_several_gpus_takes_neighbours(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_gpus(monkeypatch, 6)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,6,5,4,3,2")
    options = ("generator=vllm", "generator.tensor_parallel_size=2", "mode.num_generators=2")
    config = config_of("mode=async", *options)
    assert generator_devices(config) == ["cuda:1", "cuda:3"]
    assert num_gpus(config) == 5
    second = config_of_each(config)[1].generator
    assert isinstance(second, VLLMSampling)
    assert visible_gpus(second) == {"CUDA_VISIBLE_DEVICES": "4,3"}
    assert visible_gpus(VLLMSampling()) == {}


def test_a_generator_in_the_trainers_time_keeps_its_device(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_gpus(monkeypatch, 4)
    assert generator_devices(config_of("mode=sync")) == []
    assert num_gpus(config_of("mode=sync", "generator.device=cuda:3")) == 2


@pytest.mark.parametrize(
    ("options", "cores", "each"),
    [
        (("mode=sync",), 8, 8),
        (("mode=sync", "generator.threads=8", "engine.threads=8"), 8, None),
        (("mode=sync",), 1, None),
        (("mode=async",), 2, None),
        (("mode=async",), 8, 4),
        (("mode=async", "mode.num_generators=3"), 8, 2),
        (("mode=async", "mode.num_generators=3"), 3, None),
    ],
)
def test_cores_that_a_larger_model_leaves_idle_are_named(
    config_of: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    cores: int,
    each: int | None,
) -> None:
    monkeypatch.setattr(checks_devices, "usable_cores", lambda: cores)
    config = config_of("engine.device=cpu", *options)
    assert idle_cores(config, torch.nn.Linear(8, 8)) == ""
    monkeypatch.setattr(checks_devices, "CACHE_BYTES", 0)
    advice = idle_cores(config, torch.nn.Linear(8, 8))
    assert bool(advice) == (each is not None)
    if each is not None:
        assert f"engine.threads={each} generator.threads={each} " in advice
