"""Reward models score in float32, whatever type their files have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from rlhf_lab.models.reward_model import for_scores, load_reward_model
from rlhf_lab.rewards.model import CPU, head_outputs, row_scores
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
