"""Off-policy measures by hand: ratios, effective sample sizes, the three gaps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos import off_policy
from rlhf_lab.models.batching import collate, token_weights
from rlhf_lab.types.data import Batch, Reduction
from tests.support.examples import group, policy_output

BEHAVIOR = [[-1.0, -2.0], [-0.5]]
POLICY = [[-1.0 + math.log(2), -2.0], [-0.5 - math.log(4)]]


def batch() -> Batch:
    """Two rows, of two tokens and of one; sequence means, so weights 1/4, 1/4 and 1/2."""
    made = collate([group(0, BEHAVIOR, [1.0, 0.0])], pad_id=0)
    return replace(made, weight_BT=token_weights(made, Reduction.sequence_mean))


def logp(rows: list[list[float]]) -> Tensor:
    return policy_output(rows, batch()).logp_BT.detach()


def test_ratios_and_effective_sample_sizes_by_hand() -> None:
    rows = off_policy.measure(logp(POLICY), batch(), torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    found = off_policy.summary([rows], [torch.tensor([3, 5])])
    # ratios 2, 1 and 1/4 at weights 1/4, 1/4 and 1/2
    mean = 0.25 * 2 + 0.25 * 1 + 0.5 * 0.25
    square = 0.25 * 4 + 0.25 * 1 + 0.5 / 16
    assert found["ratio/mean"] == pytest.approx(mean)
    assert found["ratio/max"] == pytest.approx(2.0)
    assert found["ratio/ess"] == pytest.approx(mean**2 / square)
    assert found["ratio/clipped"] == pytest.approx(0.25)
    # whole sequences: ratios 2 and 1/4
    assert found["ratio/ess_sequences"] == pytest.approx((2.25**2) / (2 * (4 + 1 / 16)))
    k1 = 0.25 * -math.log(2) + 0.5 * math.log(4)
    k3 = 0.25 * (2 - 1 - math.log(2)) + 0.5 * (0.25 - 1 + math.log(4))
    assert found["kl/behavior_policy_k1"] == pytest.approx(k1)
    assert found["kl/behavior_policy_k3"] == pytest.approx(k3)
    # by lag, each row alone
    assert found["by_lag/ratio/mean"] == pytest.approx({"3": 1.5, "5": 0.25})
    assert found["by_lag/ratio/max"] == pytest.approx({"3": 2.0, "5": 0.25})
    assert found["by_lag/ratio/ess_sequences"] == pytest.approx({"3": 1.0, "5": 1.0})
    assert found["by_lag/ratio/clipped"] == pytest.approx({"3": 0.5, "5": 0.0})


def test_the_distance_to_the_reference_is_another_one() -> None:
    away = replace(batch(), reference_logp_BT=logp([[-1.0, -2.0], [-0.5 - math.log(2)]]))
    rows = off_policy.measure(logp(BEHAVIOR), away, None)
    found = off_policy.summary([rows], [torch.tensor([0, 0])])
    assert found["kl/behavior_policy_k1"] == found["kl/behavior_policy_k3"] == 0.0
    assert found["ratio/ess"] == pytest.approx(1.0)
    assert found["kl/policy_reference_k1"] == pytest.approx(0.5 * math.log(2))
    assert found["kl/policy_reference_k3"] == pytest.approx(0.5 * (0.5 - 1 + math.log(2)))


def test_rows_that_the_reference_was_not_asked_about_say_nothing_of_it() -> None:
    away = replace(
        batch(),
        reference_logp_BT=logp([[-1.0, -2.0], [-0.5 - math.log(2)]]),
        has_reference_B=torch.tensor([False, True]),
    )
    rows = off_policy.measure(logp(BEHAVIOR), away, None)
    found = off_policy.summary([rows], [torch.tensor([0, 1])])
    # Half of the weight is left, and all of it on the row that is log 2 away.
    assert found["kl/policy_reference_k1"] == pytest.approx(math.log(2))
    assert found["by_lag/kl/policy_reference_k1"] == pytest.approx({"1": math.log(2)})
    nobody = replace(away, has_reference_B=torch.tensor([False, False]))
    none = off_policy.summary([off_policy.measure(logp(BEHAVIOR), nobody, None)], [torch.zeros(2)])
    assert "kl/policy_reference_k1" not in none
    assert none["kl/behavior_policy_k1"] == 0.0


def test_several_updates_weigh_alike_and_no_update_says_nothing() -> None:
    one = off_policy.measure(logp(POLICY), batch(), None)
    two = off_policy.measure(logp(BEHAVIOR), batch(), None)
    lag = torch.tensor([0, 0])
    found = off_policy.summary([one, two], [lag, lag + 1])
    assert found["ratio/mean"] == pytest.approx((0.875 + 1.0) / 2)
    assert found["by_lag/ratio/mean"] == pytest.approx({"0": 0.875, "1": 1.0})
    assert off_policy.summary([], []) == {}


def test_the_three_gaps_are_told_apart() -> None:
    writer = [[-1.1, -2.0], [-0.5]]
    began = [[-1.1, -2.0], [-0.7]]
    ended = [[-1.1, -2.3], [-0.7]]
    found = off_policy.gaps(batch(), logp(writer), logp(began), logp(ended), torch.tensor([0, 1]))
    # per token, over three tokens
    assert found["gap/mismatch_k1"] == pytest.approx(0.1 / 3)
    assert found["gap/staleness_k1"] == pytest.approx(0.2 / 3)
    assert found["gap/drift_k1"] == pytest.approx(0.3 / 3)
    assert found["gap/drift_k3"] == pytest.approx((math.exp(-0.3) - 1 + 0.3) / 3)
    assert found["gap/staleness_ratio_max"] == pytest.approx(1.0)
    assert found["by_lag/gap/staleness_k1"] == pytest.approx({"0": 0.0, "1": 0.2})
    assert found["by_lag/gap/mismatch_k1"] == pytest.approx({"0": 0.05, "1": 0.0})
