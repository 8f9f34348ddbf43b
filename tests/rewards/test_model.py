"""Reward models: the type of their numbers, and the rows of a pass."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from rlhf_lab.models.block_attention import use_blocks
from rlhf_lab.models.reward_model import for_scores, load_reward_model
from rlhf_lab.models.shared_prompts import common_prefix, packed_last_states
from rlhf_lab.rewards import model as scoring
from rlhf_lab.rewards.model import (
    CPU,
    head_outputs,
    passes,
    row_scores,
    scores_of,
    scores_of_groups,
    shares_prompts,
)
from rlhf_lab.types.heartbeat import watched
from rlhf_lab.types.precision import Precision
from tests.training.test_reward_model import KINDS, saved

ROWS = [[5, 6, 7], [5, 6, 8], [5, 6, 7, 8, 9], [4]]


def halved(folder: Path, kind: str) -> Path:
    """A reward model whose weights are bfloat16."""
    path = saved(folder, kind, 1)
    model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.bfloat16)
    model.save_pretrained(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_a_bfloat16_file_is_scored_in_float32_on_a_cpu(tmp_path: Path, kind: str) -> None:
    path = halved(tmp_path, kind)
    loaded, _, _ = load_reward_model(str(path))
    assert loaded.dtype is torch.bfloat16
    whole = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
    with torch.inference_mode():
        found = row_scores(for_scores(loaded, CPU), ROWS)
        assert torch.equal(found, row_scores(whole, ROWS))
    assert not torch.equal(found, found.bfloat16().float())


@pytest.mark.parametrize("kind", KINDS)
def test_the_head_of_a_bfloat16_body_computes_in_float32(tmp_path: Path, kind: str) -> None:
    loaded, _, _ = load_reward_model(str(saved(tmp_path, kind, 1)))
    with torch.inference_mode():
        exact = row_scores(for_scores(copy.deepcopy(loaded), CPU), ROWS)
        model = for_scores(loaded, CPU, Precision.bfloat16)
        found = row_scores(model, ROWS)
    assert model.base_model.dtype is torch.bfloat16
    assert not torch.equal(found, found.bfloat16().float())
    assert torch.allclose(found, exact, atol=0.05 * float(exact.abs().max()) + 1e-3)


@pytest.mark.parametrize("kind", ["Llama", "GPTNeoX"])
def test_a_bfloat16_body_has_the_rotary_frequencies_of_float32(tmp_path: Path, kind: str) -> None:
    loaded, _, _ = load_reward_model(str(saved(tmp_path, kind, 1)))
    exact = {name: buffer.clone() for name, buffer in loaded.named_buffers()}
    found = dict(for_scores(loaded, CPU, Precision.bfloat16).named_buffers())
    assert any("inv_freq" in name for name in exact) and found.keys() == exact.keys()
    assert all(torch.equal(found[name], buffer) for name, buffer in exact.items())


def test_on_a_gpu_rows_of_like_length_fill_a_pass_and_on_a_cpu_they_stay_in_order() -> None:
    lengths = [10, 700, 20, 650, 30, 5000, 1]
    assert list(passes(lengths, 3, "cpu")) == [[0, 1, 2], [3, 4, 5], [6]]
    # 3 * 512 padded tokens: a row that is longer is read alone.
    assert list(passes(lengths, 3, "cuda")) == [[5], [1, 3], [4, 2, 0, 6]]


def test_a_pass_ends_with_a_heartbeat(tmp_path: Path) -> None:
    model = for_scores(load_reward_model(str(saved(tmp_path, "Llama", 1)))[0], CPU)
    beats: list[int] = []
    with torch.inference_mode(), watched(lambda: beats.append(1)):
        scores_of(model, ROWS, 2)
    assert len(beats) == 2


def test_elsewhere_the_head_alone_is_float32(tmp_path: Path) -> None:
    loaded, _, _ = load_reward_model(str(halved(tmp_path, "Llama")))
    weight = loaded.score.weight.float()
    assert for_scores(loaded, torch.device("meta")).dtype is torch.bfloat16
    assert loaded.score.weight.dtype is torch.float32
    loaded.score.weight = torch.nn.Parameter(weight)
    hidden = torch.randn(64, weight.shape[1]).bfloat16()
    with torch.inference_mode():
        found = head_outputs(loaded, hidden)
    assert torch.allclose(found, hidden.float() @ weight.T, atol=1e-6)
    assert not torch.equal(found, found.bfloat16().float())


PROMPT, OTHER = list(range(5, 30)), [9, 8, 7]
# Groups of four, one and two rows; of nothing in common; of equal rows; and one row that begins
# another.
GROUPS = [
    [[*PROMPT, *rest] for rest in ([1], [2, 3], [2, 3, 4, 6], [2, 4])],
    [[*OTHER, 1, 2]],
    [[*OTHER, 5], [*OTHER, 6, 6, 6]],
    [[4, 5], [6, 7]],
    [[*PROMPT, 3], [*PROMPT, 3]],
    [[*OTHER, 4], [*OTHER, 4, 4]],
]


@pytest.mark.parametrize("by_blocks", [False, True])
@pytest.mark.parametrize("kind", ["Llama", "GPTNeoX"])
def test_rows_that_share_their_prompt_have_the_scores_of_rows_alone(
    tmp_path: Path, kind: str, by_blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = for_scores(load_reward_model(str(saved(tmp_path, kind, 2)))[0], CPU)
    alone = [row_scores(model, [row], 1) for rows in GROUPS for row in rows]
    if by_blocks:
        use_blocks(model)
    packed: list[int] = []
    real = packed_last_states

    def recorded(*given: Any) -> torch.Tensor:
        found = real(*given)
        packed.append(len(found))
        return found

    monkeypatch.setattr(scoring, "packed_last_states", recorded)
    for always in (True, False):
        if always:
            monkeypatch.setattr(scoring, "packing_is_cheaper", lambda *_: True)
        else:
            monkeypatch.undo()
        for tokens in (8, 40, 512):
            monkeypatch.setattr(scoring, "TOKENS_OF_ROW", tokens)
            with torch.inference_mode():
                found = scores_of_groups(model, GROUPS, 2, 1, by_blocks)
            assert torch.allclose(found, torch.cat(alone), atol=1e-5)
    assert packed


def test_rows_share_all_but_their_last_tokens() -> None:
    assert [common_prefix(rows) for rows in GROUPS] == [25, 4, 3, 0, 25, 3]


def test_on_a_cpu_rows_share_nothing_and_other_models_never_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for on_gpu in (False, True):
        monkeypatch.setattr(scoring, "stores_no_masks", lambda _, answer=on_gpu: answer)
        for kind in KINDS:
            folder = saved(tmp_path / f"{kind}{on_gpu}", kind, 1)
            found[kind, on_gpu] = shares_prompts(for_scores(load_reward_model(str(folder))[0], CPU))
    assert [pair for pair, shares in found.items() if shares] == [
        ("Llama", True),
        ("GPTNeoX", True),
    ]
