"""Products over packed weights: those of the layer, of the weights that are loaded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlhf_lab.models.devices import multiplies_bfloat16
from rlhf_lab.rollout.generators import packed_products
from rlhf_lab.rollout.generators.packed_products import MOST_ROWS, PackedProducts

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
    reason="this torch has no oneDNN",
)


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_products, "CACHE_BYTES", 0)


DTYPES = [torch.float32, *([torch.bfloat16] if multiplies_bfloat16() else [])]


def layers(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(48, 96), nn.Linear(96, 17, bias=False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [1, 8, MOST_ROWS, MOST_ROWS + 1])
def test_a_product_is_that_of_the_layer_up_to_rounding(rows: int, dtype: torch.dtype) -> None:
    model = layers().to(dtype)
    hidden = torch.randn(rows, 1, 48, generator=torch.Generator().manual_seed(rows)).to(dtype)
    rounding = 8 * torch.finfo(dtype).eps
    with torch.inference_mode():
        plain = model(hidden)
        with PackedProducts(model).in_use():
            packed = model(hidden)
        assert len(PackedProducts(model)) == 2
        torch.testing.assert_close(packed, plain, rtol=rounding, atol=rounding)
        assert torch.equal(model(hidden), plain)


@pytest.mark.parametrize("how", ["state", "copy", "data"])
def test_products_are_of_the_weights_that_are_loaded(how: str) -> None:
    model, other = layers(0), layers(1)
    packed = PackedProducts(model)
    hidden = torch.ones(2, 48)
    with torch.inference_mode(), packed.in_use():
        before = model(hidden)
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            if how == "copy":
                mine.copy_(theirs)
            elif how == "data":
                mine.data = theirs.data
        if how == "state":
            model.load_state_dict(other.state_dict())
        after = model(hidden)
    with torch.inference_mode():
        torch.testing.assert_close(after, other(hidden), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(before, after)


def test_other_models_keep_their_own_products(monkeypatch: pytest.MonkeyPatch) -> None:
    for model, least in ((layers(), 10**9), (layers().to(torch.float64), 0)):
        monkeypatch.setattr(packed_products, "CACHE_BYTES", least)
        given = torch.ones(2, 48).to(next(model.parameters()).dtype)
        with torch.inference_mode(), PackedProducts(model).in_use():
            inside = model(given)
        with torch.inference_mode():
            assert torch.equal(inside, model(given))
