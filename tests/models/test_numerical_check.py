"""Self-tests of ways to read rows: what they find out, and that what raises is not taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlhf_lab.models.forward import TokenRows, before_tokens, inputs
from rlhf_lab.models.loading import require_padded_rows
from rlhf_lab.models.numerical_check import (
    LONGEST,
    exact,
    example,
    is_splittable,
    padding_problem,
    problem_of,
    tried,
)
from rlhf_lab.models.shared_prompts import is_packable, packed_states, packing_problem
from rlhf_lab.types.errors import UserError
from tests.support.tiny_families import ALIBI, HYBRID, tiny
from tests.support.variants import names

INF, NAN, FIRST = float("inf"), float("nan"), torch.tensor([0])
WINDOWED = {"gpt_neo": "window_size", "gemma3_text": "sliding_window"}


def padded_states(body: Any, rows: TokenRows) -> torch.Tensor:
    return before_tokens(body(**inputs(rows)).last_hidden_state, rows)[rows.mask_BT > 0]


@pytest.mark.parametrize("kind", ["gpt2", "qwen3", "phi3"])
def test_full_attention_shares_prompts_in_any_class(kind: str) -> None:
    assert packing_problem(tiny(kind).base_model) == ""


@pytest.mark.parametrize("window", [5, 12, LONGEST - 2, LONGEST - 1, 4096])
@pytest.mark.parametrize("kind", list(WINDOWED))
def test_windows_of_any_width_do_not_share_prompts(kind: str, window: int) -> None:
    body = tiny(kind, **{WINDOWED[kind]: window}).base_model
    assert not is_packable(body)
    if window <= LONGEST - 2:
        # The rows of the test are long enough to see it.
        assert problem_of(body, packed_states)
        assert example(body).prompt_BS.shape[1] == window + 2
    assert problem_of(body, padded_states) == ""


@pytest.mark.parametrize("kind", names([*ALIBI, *HYBRID], ["bloom", "mpt", "lfm2", "mamba"]))
def test_what_raises_or_differs_is_not_taken_and_padding_is_read(kind: str) -> None:
    """Some of these models raise where they get a mask of all pairs."""
    model = tiny(kind)
    assert packing_problem(model.base_model)
    assert padding_problem(model) == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["recurrent_gemma", "rwkv"])
def test_models_that_read_their_padding_are_refused(kind: str, dtype: torch.dtype) -> None:
    with pytest.raises(UserError, match=r"model\.path=somewhere: .*CausalLM"):
        require_padded_rows(tiny(kind).to(dtype), "somewhere", "model.path")
    for other in ("gpt2", "gemma3_text", "lfm2"):
        require_padded_rows(tiny(other).to(dtype), "somewhere", "model.path")


def test_a_vocabulary_with_tokens_that_are_ruled_out_is_read() -> None:
    model = tiny("gpt2")
    model.lm_head.register_forward_hook(lambda _, __, logits: logits.index_fill(-1, FIRST, -INF))
    assert padding_problem(model) == ""
    model = tiny("rwkv")
    model.head.register_forward_hook(lambda _, __, logits: logits.index_fill(-1, FIRST, -INF))
    assert padding_problem(model)


def test_logits_that_are_no_numbers_are_a_problem() -> None:
    model = tiny("gpt2")

    def spoilt(_: Any, __: Any, logits: torch.Tensor) -> torch.Tensor:
        alone = len(logits) == 1
        return logits.index_fill(1, torch.arange(0, logits.shape[1], 2), NAN) if alone else logits

    model.lm_head.register_forward_hook(spoilt)
    assert padding_problem(model)


def test_shortage_of_memory_is_no_answer_of_a_self_test() -> None:
    def short() -> float:
        raise MemoryError

    def shortage_of_torch() -> float:
        raise torch.OutOfMemoryError

    def unfit() -> float:
        raise TypeError("forward() got an unexpected argument")

    for test in (short, shortage_of_torch):
        with pytest.raises((MemoryError, torch.OutOfMemoryError)):
            tried(test)
    far, reason = tried(unfit)
    assert far == float("inf") and "unexpected argument" in reason
    assert tried(lambda: 0.5) == (0.5, "")


def test_a_head_that_raises_is_not_split_off() -> None:
    model = tiny("gpt2")
    assert is_splittable(model)
    model.lm_head.register_forward_pre_hook(lambda *_: [][0])
    assert not is_splittable(model)


def test_models_of_half_precision_are_tested_with_layers_of_each_kind() -> None:
    model = tiny("gemma3_text").bfloat16()
    kinds = model.config.layer_types
    assert kinds[:2] == ["sliding_attention"] * 2 and "full_attention" in kinds
    small = exact(model.base_model)
    assert set(small.config.layer_types) == set(kinds)
    assert small.dtype is torch.float32
    assert not is_packable(model.base_model)
