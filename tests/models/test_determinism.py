"""deterministic=true: the flag is on where a run computes, and nowhere else; a CPU's bits stay."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlhf_lab.experiment.artifacts.keys import ArtifactKeys
from rlhf_lab.experiment.build import rollout
from rlhf_lab.experiment.build.engine import engine_job
from rlhf_lab.experiment.config.config import changed
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.experiment.run import train
from rlhf_lab.models.devices import WORKSPACE, deterministic, require_workspace
from rlhf_lab.runs.identity import hash_of
from rlhf_lab.types.errors import UserError
from tests.conftest import MakeConfig
from tests.support.in_memory import run_in_memory


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test sets is gone after it."""
    monkeypatch.setenv(WORKSPACE, "")
    monkeypatch.delenv(WORKSPACE)


def is_on() -> bool:
    flags = torch.backends.cudnn
    return torch.are_deterministic_algorithms_enabled() and flags.deterministic


def test_the_flags_are_on_inside_and_as_before_after() -> None:
    memory: Any = torch.utils.deterministic
    before = memory.fill_uninitialized_memory
    with deterministic(True):
        assert is_on() and not torch.backends.cudnn.benchmark
        assert os.environ[WORKSPACE] == ":4096:8"
        with deterministic(True):
            assert is_on()
        assert is_on()
    assert not is_on() and not torch.backends.cudnn.deterministic
    assert memory.fill_uninitialized_memory is before


def test_without_the_option_nothing_changes() -> None:
    with deterministic(False):
        assert not is_on()
    assert WORKSPACE not in os.environ


def test_the_flags_go_off_after_an_error() -> None:
    with pytest.raises(RuntimeError), deterministic(True):
        raise RuntimeError
    assert not is_on()


@pytest.mark.parametrize("value", ["", ":0:0"])
def test_cuda_that_started_with_another_workspace_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setenv(WORKSPACE, value)
    with pytest.raises(UserError, match=f"set {WORKSPACE}=:4096:8 in the environment"):
        require_workspace()
    monkeypatch.setenv(WORKSPACE, ":16:8")
    require_workspace()


def test_ranks_of_torchrun_need_the_workspace_before_they_start(
    config_of: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of("deterministic=true", "engine=fsdp")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    check(config)
    monkeypatch.setattr("rlhf_lab.experiment.rules.devices.chosen", lambda *_: torch.device("cuda"))
    with pytest.raises(UserError, match="with 2 processes: set CUBLAS_WORKSPACE_CONFIG=:4096:8"):
        check(config)
    monkeypatch.setenv(WORKSPACE, ":4096:8")
    check(config)


def test_generators_with_own_kernels_are_refused(config_of: MakeConfig) -> None:
    config = config_of("deterministic=true")
    generator: Any = replace(config.generator)
    object.__setattr__(generator, "has_own_kernels", True)
    with pytest.raises(UserError, match="deterministic=true with generator=hf: vLLM has kernels"):
        check(replace(config, generator=generator), here=False)


def test_only_the_flag_itself_has_other_hashes(config_of: MakeConfig) -> None:
    off, on = config_of("deterministic=false"), config_of("deterministic=true")
    assert hash_of(changed(off)) != hash_of(changed(on))
    assert "deterministic" not in ArtifactKeys(off).sft(off.model)
    assert ArtifactKeys(on).sft(on.model)["deterministic"] is True


def test_a_run_computes_with_the_flag_and_has_the_bits_of_one_without(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    build = engine_job

    def spied(*arguments: Any) -> Any:
        seen.append(is_on())
        return build(*arguments)

    monkeypatch.setattr(train, "engine_job", spied)
    config = make_config()
    # Stages are of another key with the flag: both runs begin with the same policy here.
    plain_run = run_in_memory(config)
    monkeypatch.setattr(ArtifactKeys, "_key", without_flag(ArtifactKeys._key))
    assert run_in_memory(replace(config, deterministic=True)) == plain_run
    assert seen == [False, True] and not is_on()


def without_flag(key: Any) -> Any:
    def made(self: ArtifactKeys, *judges: Any, **settings: Any) -> Any:
        found = key(self, *judges, **settings)
        return {name: value for name, value in found.items() if name != "deterministic"}

    return made


def test_generator_processes_turn_it_on_for_their_life(make_config: MakeConfig) -> None:
    config = make_config("deterministic=true", "mode=async")
    with deterministic(True):  # restores what the worker's process would not
        torch.use_deterministic_algorithms(False)
        assert rollout.build_alone(config, sources_of(config))
        assert is_on()


def sources_of(config: Any) -> Any:
    from rlhf_lab.experiment.artifacts.prepare import Artifacts
    from rlhf_lab.runs.trackers.console import Console

    return Artifacts(config, Console(quiet=True)).sources()
