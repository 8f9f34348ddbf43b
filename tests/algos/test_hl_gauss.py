"""Values by classification against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import pytest
import torch

from rlhf_lab.algos.ma_ppo import MacroPPO, MacroValue
from rlhf_lab.algos.mdpo import MDPO
from rlhf_lab.algos.ppo import PPO, histogram, histogram_error
from rlhf_lab.models.heads import expected
from rlhf_lab.types.data import Batch, Bins, PolicyOutput
from rlhf_lab.types.errors import UserError
from tests.support.golden import POLICY, VALUE, cells, four_rows, padded

FOUR = Bins(4, -2.0, 2.0)
OPTIONS: dict[str, Any] = {
    "value_bins": 4,
    "value_min": -2.0,
    "value_max": 2.0,
    "value_clip": 0.0,
    "whiten_advantages": False,
}


def by_hand(target: float) -> list[float]:
    """Shares of the bins -2 to -1, -1 to 0, 0 to 1 and 1 to 2 in N(target, 0.75), cut at +-2."""
    normal = NormalDist(min(2.0, max(-2.0, target)), 0.75)
    below = [normal.cdf(edge) for edge in (-2.0, -1.0, 0.0, 1.0, 2.0)]
    whole = below[-1] - below[0]
    return [(high - low) / whole for low, high in pairwise(below)]


@pytest.mark.parametrize("target", [0.5, -1.3, 2.0, 7.0, -50.0])
def test_the_histogram_of_a_target(target: float) -> None:
    (((*share,),),) = histogram(torch.tensor([[target]]), FOUR, 0.75).tolist()
    assert share == pytest.approx(by_hand(target), abs=1e-6)
    assert sum(share) == pytest.approx(1.0, abs=1e-6)


def test_half_a_point_in_the_middle_of_a_bin() -> None:
    # Phi of -3.3333, -2, -0.6667, 0.6667, 2 standard deviations of 0.75
    (((*share,),),) = histogram(torch.tensor([[0.5]]), FOUR, 0.75).tolist()
    assert share == pytest.approx([0.0228, 0.2353, 0.5075, 0.2346], abs=1e-3)


def test_a_value_is_the_mean_of_the_centres() -> None:
    logits = torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    assert float(expected(logits, FOUR)) == pytest.approx(-0.15 - 0.1 + 0.15 + 0.6)
    # Far from the ends, that of a target's histogram is the target.
    bins = Bins(101, -10.0, 10.0)
    share_BTH = histogram(torch.tensor([[3.21, -4.0]]), bins, 0.75)
    found = expected(share_BTH.log(), bins).flatten().tolist()
    assert found == pytest.approx([3.21, -4.0], abs=1e-4)


def logits_of(batch: Batch) -> torch.Tensor:
    """Other ones at each token."""
    shape = (*batch.mask_BT.shape, 4)
    return torch.arange(math.prod(shape)).reshape(shape).remainder(5).float() / 5


def output_of(batch: Batch) -> PolicyOutput:
    logp_BT = padded(POLICY, batch.mask_BT)
    value_BT = padded(VALUE, batch.mask_BT)
    return PolicyOutput(logp_BT, torch.zeros_like(logp_BT), value_BT, logits_of(batch))


def cross_entropies(batch: Batch) -> list[list[float]]:
    """By plain numbers, for each cell."""
    rows = []
    for targets, logits in zip(batch.target_BT.tolist(), logits_of(batch).tolist(), strict=True):
        row = []
        for target, scores in zip(targets, logits, strict=True):
            whole = math.log(sum(map(math.exp, scores)))
            shares = by_hand(target)
            row.append(-sum(q * (s - whole) for q, s in zip(shares, scores, strict=True)))
        rows.append(row)
    return rows


@pytest.mark.parametrize("kind", [PPO, MDPO])
def test_the_loss_has_the_cross_entropy_of_the_histograms(kind: Any) -> None:
    algo = kind(value_coef=0.5, **OPTIONS)
    batch = four_rows(algo)
    assert algo.needs.bins == FOUR
    found = algo.loss(output_of(batch), batch)
    error = sum(
        sum(row[:length]) for row, length in zip(cross_entropies(batch), (3, 1, 2, 3), strict=True)
    )
    assert float(found.metrics["ppo/value_error"]) == pytest.approx(error / 9, abs=1e-5)
    without = algo.surrogate(output_of(batch), batch).loss
    assert float(found.loss - without) == pytest.approx(0.5 * error / 9, abs=1e-5)


def test_credit_and_targets_are_those_of_regression() -> None:
    binned, plain = PPO(**OPTIONS), PPO(whiten_advantages=False)
    assert torch.equal(four_rows(binned).credit_BT, four_rows(plain).credit_BT)
    assert torch.equal(four_rows(binned).target_BT, four_rows(plain).target_BT)


def test_macro_actions_learn_the_histogram_before_their_first_token() -> None:
    algo = MacroPPO(macro_tokens=2, value_coef=0.5, **OPTIONS)
    batch = four_rows(algo)
    error = cross_entropies(batch)
    # first tokens only, once for each token of the macro action
    whole = 2 * error[0][0] + error[0][2] + error[1][0] + 2 * error[2][0]
    whole += 2 * error[3][0] + error[3][2]
    found = algo.loss(output_of(batch), batch).metrics["ppo/value_error"]
    assert float(found) == pytest.approx(whole / 9, abs=1e-5)


def test_the_gradient_is_that_of_softmax_less_the_histogram() -> None:
    batch = four_rows(PPO(**OPTIONS))
    logits_BTH = logits_of(batch).requires_grad_()
    policy = replace(output_of(batch), value_logits_BTH=logits_BTH)
    error_BT = histogram_error(policy, batch, FOUR, 0.75)
    error_BT.sum().backward()  # type: ignore[no-untyped-call]
    share_BTH = histogram(batch.target_BT, FOUR, 0.75)
    expected_BTH = (logits_BTH.detach().softmax(2) - share_BTH) * batch.mask_BT.unsqueeze(2)
    assert logits_BTH.grad is not None
    assert torch.allclose(logits_BTH.grad, expected_BTH, atol=1e-6)
    assert len(cells(error_BT.detach())) == 9


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"value_clip": 0.2}, r"pass algo\.value_clip=0"),
        ({"value_bins": 1}, "pass two or more bins"),
        ({"value_min": 2.0}, r"algo\.value_min=2\.0 to algo\.value_max=2\.0"),
    ],
)
def test_bins_that_make_no_histogram_are_refused(options: dict[str, Any], remedy: str) -> None:
    with pytest.raises(UserError, match=remedy):
        PPO(**{**OPTIONS, **options})


def test_means_of_macro_values_have_no_histogram() -> None:
    with pytest.raises(UserError, match=r"pass algo\.macro_value=first"):
        MacroPPO(macro_value=MacroValue.equal, **OPTIONS)


def test_a_value_model_without_bins_is_a_bug() -> None:
    batch = four_rows(PPO(**OPTIONS))
    with pytest.raises(ValueError, match="a value model with bins is needed"):
        PPO(**OPTIONS).loss(replace(output_of(batch), value_logits_BTH=None), batch)
