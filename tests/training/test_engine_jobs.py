"""What other ranks get to build an engine from, and what the lead keeps."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlhf_lab.algos.pairs import OnlineDPO
from rlhf_lab.experiment.build.engine import EngineJob, engine_job
from rlhf_lab.models.heads import value_model_like
from rlhf_lab.training.engines.distributed import Processes
from rlhf_lab.training.engines.fsdp import FSDPBackend
from rlhf_lab.training.engines.options import FSDPOptions
from rlhf_lab.training.engines.parameter_backend import ReferenceUse
from rlhf_lab.training.optim import Optim
from rlhf_lab.types.precision import Precision
from tests.support.engine_cases import TINY, policy

CPU = torch.device("cpu")


def job(**options: Any) -> EngineJob:
    config: Any = SimpleNamespace(
        engine=FSDPOptions(device="cpu", **options),
        optim=Optim(lr=1e-3),
        model=TINY,
        generator=SimpleNamespace(temperature=0.7),
        algo=OnlineDPO(),
    )
    model = policy()
    return engine_job(config, model, value_model_like(model, is_shared=False))


def test_other_ranks_get_no_weights() -> None:
    whole = job(gradient_checkpointing=True)
    sent = pickle.loads(pickle.dumps(whole.sent))
    assert {tensor.device.type for tensor in sent.networks.parameters()} == {"meta"}
    assert len(pickle.dumps(whole.sent)) < len(pickle.dumps(whole)) - 4 * 30_000
    names = [name for name, _ in whole.networks.trained()]
    assert [name for name, _ in sent.networks.trained()] == names


def test_the_lead_keeps_its_part_alone() -> None:
    given = job()
    before = {name: tensor.clone() for name, tensor in given.networks.trained()}
    backend = FSDPBackend(
        given.networks,
        given.optim,
        FSDPOptions(device="cpu", dtype=Precision.float32),
        CPU,
        Processes(),
        given.use,
    )
    assert sum(tensor.numel() for tensor in given.networks.parameters()) == 0
    for name, tensor in before.items():
        assert torch.equal(backend.read(name, "weight"), tensor), name


@pytest.mark.parametrize(
    ("use", "dtype"),
    [(ReferenceUse.frozen, torch.bfloat16), (ReferenceUse.moves, torch.float32)],
)
def test_a_frozen_reference_has_the_precision_that_it_computes_in(
    use: ReferenceUse, dtype: torch.dtype
) -> None:
    given = replace(job(), use=use)
    options = FSDPOptions(device="cpu", dtype=Precision.bfloat16)
    backend = FSDPBackend(given.networks, given.optim, options, CPU, Processes(), use)
    name = next(iter(backend.shapes()))
    assert backend.read(name, "reference").dtype == dtype
    assert backend.read(name, "weight").dtype == torch.float32
