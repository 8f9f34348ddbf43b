"""Packed rows by masks of blocks: the same numbers as plain rows, in fewer blocks."""

from __future__ import annotations

import copy
import importlib.util
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.nn.attention.flex_attention import flex_attention

from rlhf_lab.models import block_attention
from rlhf_lab.models.batching import collate
from rlhf_lab.models.block_attention import (
    BLOCK,
    NAME,
    block_mask,
    needs_equal_heads,
    of_blocks,
    takes_blocks,
    use_blocks,
)
from rlhf_lab.models.forward import token_rows
from rlhf_lab.models.shared_prompts import packed, packing_is_cheaper, visible
from rlhf_lab.training.engines.policy_with_values import (
    PassKind,
    PassLayout,
    PolicyWithValues,
    Rows,
)
from tests.support.attention_cases import (
    MODELS,
    VALUES,
    assert_alike,
    everything,
    group,
    model,
    uneven,
    value_network,
)

pytestmark = pytest.mark.usefixtures("costly")

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("kind", list(MODELS))
@pytest.mark.parametrize("values", VALUES)
def test_rows_packed_by_blocks_are_plain_rows(kind: str, values: str) -> None:
    policy = model(kind)
    pair = (policy, value_network(policy, values))
    mine = PolicyWithValues(*copy.deepcopy(pair), 0.7, True, maskless_on=CPU)
    plain = PolicyWithValues(*copy.deepcopy(pair), 0.7)
    assert mine.is_packable
    kind = PassKind.policy if values == "none" else PassKind.both
    for chunks in (1, 3):
        found, gradients = everything(mine, kind, chunks)
        expected, expected_gradients = everything(plain, kind, chunks)
        assert_alike([*found, *gradients], [*expected, *expected_gradients])


def test_a_packed_pass_gives_every_layer_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = PolicyWithValues(model("llama"), None, 0.7, True, maskless_on=CPU)
    kinds: list[str] = []
    real = block_attention.of_blocks

    def recorded(*given: Any) -> Tensor:
        kinds.append(type(given[3]).__name__)
        return real(*given)

    monkeypatch.setattr(block_attention, "of_blocks", recorded)
    networks.save_activations()
    logp_BT = networks(uneven(), PassKind.policy, PassLayout(1, is_packed=True))[0]
    logp_BT.sum().backward()
    # Two layers, each once more in the backward pass, because nothing else of them was kept.
    assert kinds == ["BlockMask"] * 4


def test_blocks_that_nobody_sees_are_left_out() -> None:
    # A prompt of two blocks, and four responses of one block each.
    segment_L = torch.tensor([1, 1, 2, 3, 4, 5]).repeat_interleave(BLOCK)
    mask = block_mask(segment_L.unsqueeze(0))
    assert mask.to_dense()[0, 0].tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
    # Whole blocks need not look at the mask of single tokens: those off the diagonal.
    assert mask.full_kv_num_blocks is not None
    assert mask.full_kv_num_blocks[0, 0].tolist() == [0, 1, 2, 2, 2, 2]


def attended(query: Tensor, key: Tensor, value: Tensor, segment_PL: Tensor) -> Tensor:
    """Attention by the mask of all pairs, keys repeated."""
    groups = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, visible(segment_PL), scale=0.3
    )


def test_flex_attention_reads_the_blocks_and_is_compiled_a_few_times() -> None:
    """The graph that is compiled for a GPU, computed here by torch's plain operators. Masks are
    made anew for every pass, and that must not compile it anew."""
    counter = CompileCounter()
    flex = torch.compile(flex_attention, backend=counter)
    torch.manual_seed(0)
    for rows, blocks in ((1, 1), (1, 2), (2, 2), (3, 3), (4, 1), (2, 4), (1, 4)):
        length = blocks * BLOCK
        segment_PL = torch.randint(0, 4, (rows, length)).sort(dim=1).values
        query = torch.randn(rows, 4, length, 16)
        key, value = torch.randn(2, rows, 2, length, 16)
        mask = block_mask(segment_PL)
        with torch.no_grad():
            found = flex(query, key, value, block_mask=mask, scale=0.3, enable_gqa=True)
        expected = attended(query, key, value, segment_PL)
        assert torch.allclose(found, expected, atol=1e-5)
        assert torch.allclose(of_blocks(query, key, value, mask, 0.3), expected, atol=1e-5)
    assert counter.frame_count <= 4


def test_the_number_of_variants_is_set_in_every_version_of_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, Any]] = []

    def of_2_13(function: Any, *, recompile_limit: int | None = None) -> Any:
        given.append({"recompile_limit": recompile_limit})
        return function

    def before(function: Any, *, dynamic: bool | None = None) -> Any:
        given.append({})
        return function

    for made in (of_2_13, before):
        monkeypatch.setattr(torch, "compile", made)
        with torch._dynamo.config.patch(recompile_limit=8):
            assert block_attention.compiled.__wrapped__() is flex_attention
            limit = torch._dynamo.config.recompile_limit
        assert given.pop().get("recompile_limit", limit) == block_attention.VARIANTS


def test_autocast_gives_the_kernel_one_type() -> None:
    query, key = torch.randn(2, 1, 2, BLOCK, 16)
    mask = block_mask(torch.ones(1, BLOCK, dtype=torch.long))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert of_blocks(query, key, key.bfloat16(), mask, 0.3).dtype is torch.bfloat16


def test_packed_rows_are_whole_blocks_wide() -> None:
    pack = packed(uneven(), BLOCK)
    narrow = packed(uneven())
    width = narrow.token_PL.shape[1]
    assert pack.token_PL.shape[1] == BLOCK
    assert torch.equal(pack.token_PL[:, :width], narrow.token_PL)
    assert not pack.segment_PL[:, width:].any()


def test_queries_that_share_keys_get_their_own_where_no_kernel_shares() -> None:
    query, key = torch.empty(1, 4, 8, 16, device="meta"), torch.empty(1, 2, 8, 16, device="meta")
    assert needs_equal_heads(query, key)
    assert not needs_equal_heads(query, query)
    assert not needs_equal_heads(query.bfloat16(), key.bfloat16())
    assert not needs_equal_heads(torch.empty(1, 4, 8, 16), torch.empty(1, 2, 8, 16))


@pytest.mark.parametrize("reads_causal", [True, False])
def test_keys_of_their_own_change_nothing(
    reads_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a mask, too, where transformers gives every query its keys by itself."""
    networks = PolicyWithValues(model("llama"), None, 0.7, maskless_on=CPU)
    networks.plain_rows = Rows.causal if reads_causal else Rows.padded
    shared = everything(networks, PassKind.policy, 1, is_packed=False)
    monkeypatch.setattr(block_attention, "needs_equal_heads", lambda query, key: True)
    own = everything(networks, PassKind.policy, 1, is_packed=False)
    for one, other in zip(own, shared, strict=True):
        assert_alike(one, other)


def test_without_a_compiler_of_kernels_rows_are_causal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = copy.deepcopy(model("llama"))
    wide.config.head_dim = 64
    bodies = [wide.base_model, model("neox").base_model]
    for network in bodies:
        use_blocks(network)
        assert network.config._attn_implementation == NAME
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    # Heads of 8 numbers are too narrow for the kernels.
    assert [takes_blocks(network, GPU) for network in bodies] == [True, False]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not takes_blocks(wide.base_model, GPU)
    assert not takes_blocks(model("llama", "eager").base_model, CPU)
    monkeypatch.setattr(block_attention, "takes_blocks", lambda network, device: False)
    networks = PolicyWithValues(model("llama"), None, 0.7, True, maskless_on=CPU)
    assert not networks.is_packable
    assert networks.plain_rows is Rows.causal


@pytest.mark.parametrize(
    ("prompt", "responses", "length", "pays"),
    [(300, 8, 45, True), (40, 2, 12, False), (100, 4, 150, True), (10, 8, 400, False)],
)
def test_blocks_pay_where_prompts_are_long(
    prompt: int, responses: int, length: int, pays: bool
) -> None:
    rows = collate([group(0, [1] * prompt, *([[2] * length] * responses))], pad_id=0)
    assert packing_is_cheaper(token_rows(rows), 1024, by_blocks=True) is pays


def test_blocks_pay_where_a_mask_of_all_pairs_does_not() -> None:
    """Eight long answers see many pairs in vain, which only a mask of all pairs computes."""
    rows = token_rows(collate([group(0, [1] * 200, *([[2] * 500] * 8))], pad_id=0))
    assert not packing_is_cheaper(rows, 512)
    assert packing_is_cheaper(rows, 512, by_blocks=True)
