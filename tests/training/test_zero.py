"""DeepSpeed ZeRO with bfloat16 passes: float32 masters, in two processes and through a restart."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest
import torch

from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.types.precision import Precision
from tests.support.engine_cases import engine, losses, policy, restore, updates
from tests.support.two_ranks import act_together, seen_of
from tests.support.zero_worker import ALGO, STAGES, zero_acts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("processes"),
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs rlhf-lab[deepspeed]"),
]

Seen = dict[int, dict[str, Any]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What the lead of two processes saw of each stage."""
    folder = tmp_path_factory.mktemp("zero")
    act_together(folder, zero_acts())
    return {stage: seen_of(folder, f"stage{stage}") for stage in STAGES}


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Whether two checkpoints have equal tensors."""
    for part in ("weights", "state"):
        assert one[part].keys() == other[part].keys()
        for name, tensor in one[part].items():
            assert tensor.dtype == other[part][name].dtype, name
            assert torch.equal(tensor, other[part][name]), name


@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_learn_in_bfloat16_passes(seen: Seen, stage: int) -> None:
    learned = seen[stage]["learned"]
    assert all(after < before for before, after in pairwise(learned))
    assert learned[-1] < 0.2 * learned[0]
    low = SingleEngineOptions(dtype=Precision.bfloat16)
    alone = engine(low, ALGO, policy().bfloat16())
    assert learned == pytest.approx(losses(updates(alone, ALGO, [0] * 6)), abs=3e-2)


@pytest.mark.parametrize("stage", STAGES)
def test_steps_below_the_resolution_of_bfloat16_move_the_masters(seen: Seen, stage: int) -> None:
    start, small = seen[stage]["start"], seen[stage]["small"]
    for name, before in start["weights"].items():
        masters = [held["state"][f"{name}/master"] for held in (start, small)]
        assert {before.dtype} == {torch.bfloat16}
        assert {master.dtype for master in masters} == {torch.float32}
        assert torch.equal(masters[0], before.float())
        assert not torch.equal(masters[0], masters[1])
        assert (masters[1] - masters[0]).abs().max() < 1e-5
        assert torch.equal(masters[1].bfloat16(), small["weights"][name])
    rounded = torch.cat([(masters_of(small, name)).flatten() for name in start["weights"]])
    before = torch.cat([tensor.flatten() for tensor in start["weights"].values()])
    assert (rounded == before).float().mean() > 0.9, "bfloat16 weights would not have moved"


def masters_of(held: dict[str, Any], name: str) -> torch.Tensor:
    """A weight's master, rounded as a pass reads it."""
    rounded: torch.Tensor = held["state"][f"{name}/master"].bfloat16()
    return rounded


@pytest.mark.parametrize("stage", STAGES)
def test_a_checkpoint_keeps_masters_and_goes_on_with_the_same_bits(seen: Seen, stage: int) -> None:
    told = seen[stage]
    masters = [tensor for key, tensor in told["held"]["state"].items() if key.endswith("/master")]
    assert any(not torch.equal(master, master.bfloat16().float()) for master in masters)
    same(told["restored"], told["held"])
    assert told["losses"][0] == told["losses"][1]
    same(*told["after"])


def test_masters_of_two_processes_go_on_in_one(seen: Seen) -> None:
    """Those of ZeRO in an engine of one process, without rounding."""
    held = seen[3]["held"]
    alone = engine(SingleEngineOptions(dtype=Precision.bfloat16), ALGO, policy().bfloat16())
    restore(alone, held)
    state = alone.state()
    assert all(torch.equal(state[key], tensor) for key, tensor in held["state"].items())
