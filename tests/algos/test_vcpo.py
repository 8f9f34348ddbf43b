"""VCPO's baseline of least variance: by hand, from gradients of a real policy, and in a run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.algos.vcpo import VCPO
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.forward import token_rows
from rlhf_lab.training.engines.options import SingleEngineOptions
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout
from rlhf_lab.types.data import Batch
from rlhf_lab.types.errors import UserError
from tests.conftest import Finished, MakeConfig
from tests.support.engine_cases import ALGOS, batch_of, engine
from tests.support.examples import credited
from tests.support.golden import POLICY, collated, output_of, two_prompts

# Of the rows of golden.py: log-probs of whole responses under the policy, less proximal, and
# rewards less half a nat's worth of KL.
LOGP = [-3.45, -0.1, -1.35, -3.45]
AWAY = [0.2, 0.35, -0.2, -0.4]
RETURN = [0.75, 2.75, 1.925, 0.4]


def credited_rows(algo: VCPO, gradients: list[float]) -> Batch:
    """Two prompts with two rows each, and norms of the gradients of the rows' ratios."""
    log_B = torch.tensor(gradients).log()
    return credited(algo, two_prompts(), replace(collated(), log_ratio_gradient_B=log_B))[0]


def advantages(algo: VCPO, gradients: list[float]) -> list[float]:
    return credited_rows(algo, gradients).credit_BT[:, 0].tolist()


def test_vcpo_by_hand() -> None:
    algo = VCPO(kl_coef=0.5, cap=1.3)
    batch = credited_rows(algo, [1.0, 2.0, 3.0, 1.0])
    # squared norms weigh 0.75 and 2.75 by 1/5 and 4/5, and 1.925 and 0.4 by 9/10 and 1/10
    baselines = [2.35, 2.35, 1.7725, 1.7725]
    expected = [r - b for r, b in zip(RETURN, baselines, strict=True)]
    assert batch.credit_BT[:, 0].tolist() == pytest.approx(expected, abs=1e-6)
    # e^0.35 = 1.419 is the only ratio above the cap
    factors = [min(math.exp(away), 1.3) for away in AWAY]
    terms = [f * a * logp for f, a, logp in zip(factors, expected, LOGP, strict=True)]
    output = output_of(algo, POLICY, batch)
    assert float(output.loss) == pytest.approx(-sum(terms) / 4, abs=1e-6)
    assert float(output.metrics["vcpo/ratios_capped"]) == pytest.approx(1 / 4)


def test_no_other_constant_has_less_variance() -> None:
    """The sum of |g_i|^2 (R_i - b)^2 over a group is least at the baseline b."""
    gradients = [1.0, 2.0, 3.0, 1.0]
    found = advantages(VCPO(), gradients)

    def spread(shift: float) -> float:
        return sum(g**2 * (a + shift) ** 2 for g, a in zip(gradients, found, strict=True))

    assert spread(0.0) < min(spread(0.01), spread(-0.01))


def test_equal_gradients_give_the_mean_and_huge_ones_no_overflow() -> None:
    # rewards 1, 3 and 2, 0.5
    assert advantages(VCPO(), [7.0] * 4) == pytest.approx([-1.0, 1.0, 0.75, -0.75])
    assert advantages(VCPO(), [1.0, 1e30, 1.0, 1e30]) == pytest.approx([-2.0, 0.0, 1.5, 0.0])


def test_the_engine_measures_the_gradient_of_each_response_alone() -> None:
    """Against the gradient of the ratio itself, in one pass over one row."""
    trained: Any = engine(SingleEngineOptions(micro_rows=3), "online_dpo")
    batch = batch_of(trained, "online_dpo", 0)
    before = trained.weights(0).state
    found_B = trained.ratio_gradients(batch)
    networks = trained._backend.networks
    for row in range(len(batch)):
        one = batch.rows(torch.tensor([row]))
        networks.zero_grad()
        output = trained._backend.output(token_rows(one), PassKind.policy, PassLayout(1, False))
        away_BT = (output.logp_BT - one.behavior_logp_BT) * one.mask_BT
        away_BT.sum().exp().backward()
        squares = [p.grad.square().sum() for p in networks.parameters() if p.grad is not None]
        expected = torch.stack(squares).sum().sqrt().log()
        assert float(found_B[row]) == pytest.approx(float(expected), abs=1e-4)
    after = trained.weights(1).state
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_measuring_does_not_change_the_update_after_it() -> None:
    weights = []
    for measures in (False, True):
        trained = engine(SingleEngineOptions(), "online_dpo")
        batch = batch_of(trained, "online_dpo", 0)
        if measures:
            trained.ratio_gradients(batch)
        trained.update(batch, ALGOS["online_dpo"], NoCorrection(), 1e-2)
        weights.append(trained.weights(1).state)
    without, with_them = weights
    assert all(torch.equal(without[name], with_them[name]) for name in without)


def test_old_samples_are_trained_on_and_the_passes_are_counted(finished: Finished) -> None:
    options = ("algo=vcpo", "correction=ess_scaled", "mode.max_staleness=1", "optim.lr=1e-3")
    lagged = finished("mode=lagged", *options)[0]
    for row in lagged:
        assert row["total/gradient_tokens"] == row["total/trained_tokens"]
        assert row["update/vcpo/ratios_capped"] == 0.0
    baseline = finished("mode=lagged", "algo=rloo", *options[1:])[0]
    assert baseline[-1]["update/loss"] != lagged[-1]["update/loss"]


def test_an_engine_that_shards_gradients_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match="engine=single, or algo=rloo"):
        check(make_config("algo=vcpo", "engine=fsdp"))
