"""Passes in bfloat16 with float32 masters, in one process."""

from __future__ import annotations

import pytest

from rlhf_lab.experiment.derived import precision
from rlhf_lab.training.engines.options import (
    TOKENS_ON_GPU,
    Precision,
    SingleEngineOptions,
)
from tests.conftest import MakeConfig

pytestmark = pytest.mark.usefixtures("costly")

LOW = SingleEngineOptions(dtype=Precision.bfloat16)
FULL = SingleEngineOptions()


def test_a_manifest_tells_device_and_type(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tf32 = {"tf32": False}
    assert precision(make_config("engine.device=cpu", "generator.device=cpu")) == {
        "engine": {"device": "cpu", "dtype": "float32", "micro_tokens": 0, **tf32},
        "generator": {"device": "cpu", "dtype": "float32"},
    }
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert precision(make_config()) == {
        "engine": {"device": "cuda", "dtype": "bfloat16", "micro_tokens": TOKENS_ON_GPU, **tf32},
        "generator": {"device": "cuda", "dtype": "bfloat16"},
    }
