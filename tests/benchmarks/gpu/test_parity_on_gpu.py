"""Sections 1 and 7 of gpu-check as tests, on a GPU: `make test-gpu`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from benchmarks.gpu import parity, tenants
from benchmarks.gpu.findings import Finding, Setting, Verdict
from benchmarks.speed.device_limits import measure_limits
from benchmarks.speed.random_rounds import TINY

DTYPES = (torch.float32, torch.bfloat16)


def failed(findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if one.verdict is Verdict.failed]


@pytest.mark.gpu
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_pass_on_a_gpu_is_that_of_a_cpu(name: str, dtype: torch.dtype) -> None:
    assert not failed(parity.passes(name, "cuda", dtype))
    assert not failed(parity.lean(name, "cuda", dtype))
    assert not failed(parity.is_known(name, "cuda"))
    assert not failed(parity.kernels(name, "cuda", dtype))


@pytest.mark.gpu
def test_updates_of_all_algorithms_on_a_gpu_are_those_of_a_cpu() -> None:
    assert not failed(parity.updates("cuda"))


@pytest.mark.gpu
def test_a_stage_leaves_room_for_others(tmp_path: Path) -> None:
    assert not failed(tenants.shortage(Setting("cuda", True, str(tmp_path))))
    assert not failed(tenants.left_over())


@pytest.mark.usefixtures("costly")
def test_without_a_gpu_the_functions_run_on_the_cpu(tmp_path: Path) -> None:
    assert not failed(parity.passes("Llama", "cpu", torch.float32))
    assert not failed(tenants.shortage(Setting("cpu", True, str(tmp_path))))
    limits = measure_limits("cpu", torch.float32, is_small=True)
    assert limits.bandwidth > 0 and limits.flops > 0
