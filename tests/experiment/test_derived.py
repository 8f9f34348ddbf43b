"""What follows from several parts of a config: devices that a run holds, chunks in advance."""

from __future__ import annotations

import pytest
import torch

from rlhf_lab.experiment.build.engine import training_device
from rlhf_lab.experiment.rules.derived import chunks_in_advance, num_devices, probe_every
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_on_cpus_threads_are_the_devices(make_config: MakeConfig) -> None:
    assert num_devices(make_config("engine.threads=2", "generator.threads=1", "mode=async")) == 3
    assert num_devices(make_config("engine.threads=2", "generator.threads=1")) == 2


def test_on_gpus_trainers_and_servers_are_counted_and_threads_are_not(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, two_gpus: None
) -> None:
    """The paper's layout: seven trainers and one server are eight devices."""
    monkeypatch.setattr("rlhf_lab.experiment.rules.derived.world_size", lambda: 7)
    settings = ("engine.threads=8", "generator=vllm", "generator.tensor_parallel_size=2")
    config = make_config("engine.device=cpu", *settings, "generator.urls=[http://127.0.0.1:1]")
    object.__setattr__(config.engine, "device", "cuda")
    assert num_devices(config) == 9


@pytest.mark.parametrize(
    ("place", "count"), [("cuda", 1), ("cuda:0", 1), ("cuda:1", 2), ("cpu", 1)]
)
def test_a_generator_that_shares_the_trainers_gpu_adds_none(
    make_config: MakeConfig, two_gpus: None, place: str, count: int
) -> None:
    config = make_config("engine.device=cpu", "generator.device=cpu", "mode=async")
    object.__setattr__(config.engine, "device", "cuda")
    object.__setattr__(config.generator, "device", place)
    assert num_devices(config) == count


def test_more_trainers_than_gpus_are_refused(two_gpus: None) -> None:
    assert training_device("cuda", Processes(local_rank=1)) == torch.device("cuda", 1)
    assert training_device("cpu", Processes(local_rank=2)) == torch.device("cpu")
    with pytest.raises(UserError, match=r"this host has 2 GPUs and starts trainer 3"):
        training_device("auto", Processes(local_rank=2))


def test_gaps_are_measured_every_round_on_a_cpu_and_every_tenth_on_a_gpu(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probe_every(make_config()) == 1
    assert probe_every(make_config("tracker.probe_every=3")) == 3
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert probe_every(make_config()) == 10
    assert probe_every(make_config("engine.device=cpu")) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("generator=vllm",), 8),
        (("generator=vllm", "mode.prefetch=20"), 20),
        (("generator=vllm", "generator.chunk_groups=32"), 2),
        (("generator=hf",), 2),
        (("generator=hf", "mode.prefetch=3"), 3),
    ],
)
def test_vllm_is_given_all_chunks_of_a_round_at_once(
    make_config: MakeConfig, words: tuple[str, ...], expected: int
) -> None:
    config = make_config(
        "run.groups_per_update=32",
        "run.group_size=2",
        "generator.chunk_groups=4",
        "mode=async",
        *words,
    )
    assert chunks_in_advance(config) == expected
