"""Shapes that names promise are checked in the modules of the lab, and in nothing else."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from rlhf_lab.algos.advantages import leave_one_out, whitened
from rlhf_lab.types.data import PolicyOutput
from tests.support.shape_names import CHECK, Checks, WrongShape, check

MODULE = """
def sums(value_BT, mask_BT):
    '''What is summed.'''
    total_B = (value_BT * mask_BT).sum(dim=1)
    return total_B

def parts(value_BT, num):
    for part_BK in value_BT.chunk(num, dim=1):
        first_B1 = part_BK[:, :1]
        yield first_B1

def square(value_BT):
    both_BB = value_BT.T @ value_BT
"""


@pytest.fixture(scope="module")
def module() -> dict[str, Any]:
    """The names of MODULE, with checks."""
    names: dict[str, Any] = {CHECK: check}
    exec(compile(ast.fix_missing_locations(Checks().visit(ast.parse(MODULE))), "m", "exec"), names)
    return names


def test_shapes_as_named_pass(module: dict[str, Any]) -> None:
    assert module["sums"](torch.ones(2, 3), torch.ones(2, 3)).tolist() == [3, 3]
    assert module["sums"].__doc__ == "What is summed."
    assert [part.shape[1] for part in module["parts"](torch.ones(2, 5), 2)] == [1, 1]


def test_shapes_that_contradict_the_names_are_refused(module: dict[str, Any]) -> None:
    with pytest.raises(WrongShape, match=r"value_BT has shape \(3,\)"):
        module["sums"](torch.ones(3), torch.ones(3))
    with pytest.raises(WrongShape, match=r"mask_BT has shape \(2, 1\).*'T': 3"):
        module["sums"](torch.ones(2, 3), torch.ones(2, 1))
    with pytest.raises(WrongShape, match="both_BB"):
        module["square"](torch.ones(2, 3))


def test_the_kernel_refuses_a_wrong_shape() -> None:
    with pytest.raises(WrongShape, match="reward_PG"):
        leave_one_out(torch.ones(4))
    with pytest.raises(WrongShape, match="mask_BT"):
        whitened(torch.ones(2, 3), torch.ones(3, 3))
    with pytest.raises(WrongShape, match="entropy_BT"):
        PolicyOutput(torch.ones(2, 3), torch.ones(2, 4))
