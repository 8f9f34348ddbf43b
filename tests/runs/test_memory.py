"""Who ran out of memory, and what to lower."""

from __future__ import annotations

import pytest
import torch

from rlhf_lab.runs.memory import OutOfMemory, memory_for


def test_a_shortage_on_the_host_names_the_phase_and_the_key_to_lower() -> None:
    with (
        pytest.raises(OutOfMemory, match=r"in the update \(.*\): lower engine\.micro_rows=8"),
        memory_for("the update", "engine.micro_rows=8"),
    ):
        torch.empty(2**60, dtype=torch.uint8)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_devices_and_python_run_out_alike(error: BaseException) -> None:
    with pytest.raises(OutOfMemory) as raised, memory_for("generation", "generator.chunk_groups"):
        raise error
    assert raised.value.__cause__ is error


def test_the_innermost_phase_is_the_one_that_is_told() -> None:
    with (
        pytest.raises(OutOfMemory, match="in the inner"),
        memory_for("the outer", "a"),
        memory_for("the inner", "b"),
    ):
        raise MemoryError


def test_other_errors_pass_through_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes differ") as raised, memory_for("x", "y"):
        raise RuntimeError("shapes differ")
    assert not isinstance(raised.value, OutOfMemory)
