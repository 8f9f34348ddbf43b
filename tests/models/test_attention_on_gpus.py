"""Attention on a GPU: which kernel torch takes, and that all ways to read rows agree."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlhf_lab.models.batching import collate, to_device
from rlhf_lab.models.block_attention import takes_blocks
from rlhf_lab.models.forward import TokenRows, before_tokens, inputs, token_rows
from rlhf_lab.models.right_padded import right_padded_states, takes_right_padded
from rlhf_lab.models.shared_prompts import is_packable, packed_states
from rlhf_lab.training.engines.policy_with_values import (
    PassKind,
    PassLayout,
    PolicyWithValues,
    Rows,
)
from tests.support.attention_cases import MODELS, SHAPE, group

# The compiler of kernels warns of settings that are meant.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

GPU = torch.device("cuda")
# Of the norm: rounding of a pass in each type.
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 1e-4}


def wide(kind: str, dtype: torch.dtype) -> Any:
    """A model whose heads are wide enough for the kernels of a GPU."""
    made, config, extra = MODELS[kind]
    torch.manual_seed(1)
    size = {"hidden_size": 128, "max_position_embeddings": 512}
    chosen = config(**{**SHAPE, **size}, **extra, attn_implementation="sdpa")
    return made(chosen).eval().to(dtype)


def long_rows() -> TokenRows:
    """Packed rows of several blocks, prompts and responses of all lengths."""
    groups = [
        group(0, [5] * 150, [1, 2, 3] * 30, [4] * 60, [9] * 7),
        group(1, [7, 8] * 20, [3] * 100, [2, 6] * 40),
    ]
    return token_rows(to_device(collate(groups, pad_id=0), GPU))


def networks_of(model: Any, maskless: bool) -> PolicyWithValues:
    return PolicyWithValues(model, None, 0.7, True, GPU if maskless else None).to(GPU)


def gradients_of(body: Any, hidden_ND: Tensor) -> list[Tensor]:
    """Of a sum with fixed random weights."""
    weight_ND = torch.randn(hidden_ND.shape, generator=torch.Generator().manual_seed(2))
    body.zero_grad()
    loss = (hidden_ND.float() * weight_ND.to(hidden_ND.device)).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return [p.grad.detach().clone() for p in body.parameters() if p.grad is not None]


def assert_close(one: Tensor, other: Tensor, dtype: torch.dtype) -> None:
    assert (one.float() - other.float()).norm() <= TOLERANCE[dtype] * other.float().norm()


@pytest.mark.parametrize("kind", list(MODELS))
def test_rows_without_a_mask_take_flash(kind: str) -> None:
    networks = networks_of(wide(kind, torch.bfloat16), maskless=True)
    assert networks.plain_rows is Rows.causal
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        logp_BT = networks(long_rows(), PassKind.policy, PassLayout(1, False))[0]
        logp_BT.sum().backward()
    with (
        sdpa_kernel([SDPBackend.FLASH_ATTENTION]),
        pytest.warns(UserWarning),
        pytest.raises(RuntimeError, match="No available kernel"),
    ):
        networks.plain_rows = Rows.padded
        networks(long_rows(), PassKind.policy, PassLayout(1, False))


@pytest.mark.parametrize("kind", list(MODELS))
def test_float32_takes_a_kernel_that_stores_no_scores(kind: str) -> None:
    networks = networks_of(wide(kind, torch.float32), maskless=True)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        logp_BT = networks(long_rows(), PassKind.policy, PassLayout(1, False))[0]
        logp_BT.sum().backward()


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_all_ways_to_read_rows_agree(kind: str, dtype: torch.dtype) -> None:
    """Weights are float32, as they are trained; passes compute in the type."""
    model = wide(kind, torch.float32)
    plain = copy.deepcopy(model).to(GPU).base_model
    body = networks_of(model, maskless=True).policy.base_model
    assert takes_blocks(body, GPU)
    assert takes_right_padded(body)
    assert is_packable(body, by_blocks=True)
    rows = long_rows()
    with torch.autocast(GPU.type, dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
        padded = before_tokens(plain(**inputs(rows)).last_hidden_state, rows)
        expected = padded[rows.mask_BT > 0]
        ways = {
            "dense": (plain, packed_states(plain, rows)),
            "causal": (body, right_padded_states(body, rows)),
            "blocks": (body, packed_states(body, rows, by_blocks=True)),
        }
    expected_gradients = gradients_of(plain, expected)
    for network, found in ways.values():
        assert_close(found, expected, dtype)
        for one, other in zip(gradients_of(network, found), expected_gradients, strict=True):
            assert_close(one, other, dtype)


def test_blocks_are_computed_under_autocast_and_without_gradients() -> None:
    networks = networks_of(wide("llama", torch.float32), maskless=True)
    rows = long_rows()
    found = []
    for is_packed in (True, False):
        with torch.autocast(GPU.type, dtype=torch.bfloat16), torch.inference_mode():
            found.append(networks(rows, PassKind.policy, PassLayout(1, is_packed))[0])
        with torch.autocast(GPU.type, dtype=torch.bfloat16):
            found.append(networks(rows, PassKind.policy, PassLayout(1, is_packed))[0])
    for one, other in itertools.combinations(found, 2):
        assert (one - other).abs().max() <= 0.1 * other.abs().max()


def test_equal_passes_have_equal_bits() -> None:
    networks = networks_of(wide("qwen2", torch.bfloat16), maskless=True)
    for is_packed in (True, False):
        layout = PassLayout(1, is_packed)
        twice = [networks(long_rows(), PassKind.policy, layout)[0] for _ in range(2)]
        assert torch.equal(*twice)
