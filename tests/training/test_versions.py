"""Versions of the policy are copies, wherever they are kept."""

from __future__ import annotations

import torch

from rlhf_lab.training.engines.engine import copied, settle
from tests.conftest import MakeConfig
from tests.support.in_memory import result_of


def test_a_version_shares_no_memory_with_the_parameter() -> None:
    parameter = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    for stays in (True, False):
        for tensor in (parameter, parameter.t()):
            copy = copied(tensor, stays)
            assert copy.is_contiguous()
            assert not copy.requires_grad
            assert torch.equal(copy, tensor.detach())
            assert copy.data_ptr() != parameter.data_ptr()


def test_a_version_that_stays_is_where_the_parameter_is() -> None:
    kept = copied(torch.empty(2, 3, dtype=torch.bfloat16, device="meta"), stays=True)
    assert kept.is_meta
    assert kept.dtype is torch.bfloat16
    settle([kept], kept.device)


def test_versions_on_the_device_and_fewer_probes_change_nothing_else(
    make_config: MakeConfig,
) -> None:
    """Gaps are measured in rounds 0 and 2 of 3; all other numbers and the weights are equal."""
    small = ("run.updates=3", "run.groups_per_update=4", "reward=task_rule", "eval=none")
    every = result_of(make_config(*small))
    some = result_of(make_config(*small, "tracker.probe_every=2", "engine.versions=device"))
    assert every[1] == some[1]
    for round_, (row, other) in enumerate(zip(every[0], some[0], strict=True)):
        names = set(row) - set(other)
        assert all("gap/" in name for name in names), names
        assert bool(names) is (round_ == 1)
