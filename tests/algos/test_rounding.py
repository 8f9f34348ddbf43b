"""Rounding is no signal: equal rewards have no advantage, and no log-ratio makes inf or NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos import advantages
from rlhf_lab.algos.advantages import Deviation
from rlhf_lab.algos.grpo import GRPO
from rlhf_lab.algos.off_policy import (
    LARGEST_LOG_RATIO,
    corrected,
    fitted,
    gaps,
    k3_terms,
    measure,
    ratio_of,
    split_terms,
)
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.models.batching import collate, rewards_of
from rlhf_lab.types.data import Batch, ValueModel
from rlhf_lab.types.protocols import Algorithm, Correction
from tests.algos.test_properties import FORMS, NAMES, TAUGHT, groups_of, judged, make, pull
from tests.support.examples import group

CORRECTIONS = classes("correction")
# Credit by a value model is not by the rewards alone, nor by a teacher.
BY_REWARD = [n for n in NAMES if make(n).needs.values is ValueModel.none and n not in TAUGHT]
OF_GROUPS = [n for n in BY_REWARD if make(n).needs.group_size > 1]
# Means of these rewards, of two decimals as rules give them, are often not the rewards themselves.
RNG = torch.Generator().manual_seed(0)
VALUES = [0.35, 12.3, *(torch.randint(-3000, 3000, (6,), generator=RNG) / 100).tolist()]
FAR = 200.0


def credit_of(algo: Algorithm, rewards: list[list[float]]) -> Tensor:
    """The credit of each sample that is trained on, PG, 0 for others; all are at the reference, and
    of 2 to 4 tokens."""
    size = len(rewards[0])
    logps = [[-0.5] * (2 + k % 3) for k in range(size)]
    groups = [group(number, logps, row) for number, row in enumerate(rewards)]
    batch = collate(groups, pad_id=0, limit=6)
    batch = replace(batch, reference_logp_BT=batch.behavior_logp_BT)
    credit = algo.credit(rewards_of(groups), batch)
    return (credit.value_BT.abs().amax(dim=1) * credit.keep_B).view(len(groups), size)


def tied_rows(size: int) -> list[list[float]]:
    """Groups of equal rewards, and one of others among them."""
    rows = [[value] * size for value in VALUES]
    return [rows[0], [float(k) / 3 for k in range(size)], *rows[1:]]


@pytest.mark.parametrize("name", OF_GROUPS)
def test_a_group_of_equal_rewards_has_no_advantage(name: str) -> None:
    """Of any size, and whatever the other groups earn."""
    for size in range(2, 17):
        found_PG = credit_of(make(name), tied_rows(size))
        if name == "asymre":  # its shift, the same for all
            assert torch.equal(found_PG[0], torch.full((size,), 0.1))
            found_PG = found_PG - found_PG[0]
        if name == "crraft":  # the first sample, by its reward
            found_PG = found_PG[:, 1:]
        tied_PG = torch.cat([found_PG[:1], found_PG[2:]])
        assert not tied_PG.any()


@pytest.mark.parametrize("name", [n for n in BY_REWARD if n not in OF_GROUPS])
def test_a_round_of_equal_rewards_has_no_advantage(name: str) -> None:
    for value, size in product(VALUES, (1, 7, 8)):
        assert not credit_of(make(name), [[value] * size] * 3).any()


@pytest.mark.parametrize("deviation", Deviation)
def test_no_deviation_divides_what_only_rounds(deviation: Deviation) -> None:
    for size in range(2, 17):
        found_PG = credit_of(GRPO(deviation=deviation), tied_rows(size))
        assert not found_PG[0].any() and not found_PG[2:].any()
        assert found_PG[1].any()


def test_unequal_rewards_have_the_advantages_of_the_formulas() -> None:
    """Bit for bit: a tied group changes no other."""
    reward_PG = torch.randn((5, 7), generator=RNG)
    mean_P1 = reward_PG.mean(dim=1, keepdim=True)
    assert torch.equal(advantages.centred(reward_PG), reward_PG - mean_P1)
    others_PG = (reward_PG.sum(dim=1, keepdim=True) - reward_PG) / 6
    assert torch.equal(advantages.leave_one_out(reward_PG), reward_PG - others_PG)
    assert torch.equal(advantages.centred_in_round(reward_PG), reward_PG - reward_PG.mean())
    equal_PG = torch.full((5, 7), 0.35)
    mask_PG = torch.ones_like(equal_PG)
    assert not advantages.whitened(equal_PG, mask_PG).any()
    assert torch.equal(advantages.whitened(equal_PG, mask_PG, keep_mean=True), equal_PG)


def test_ordinary_ratios_keep_their_bits_and_gradients() -> None:
    for function, plain in (
        (ratio_of, torch.exp),
        (k3_terms, lambda log_ratio: torch.expm1(log_ratio) - log_ratio),
    ):
        pulls = []
        for each in (function, plain):
            log_ratio = torch.linspace(-300, LARGEST_LOG_RATIO - 0.01, 999).requires_grad_()
            found = each(log_ratio)
            found.sum().backward()
            assert log_ratio.grad is not None
            pulls.append((found.detach(), log_ratio.grad))
        assert torch.equal(pulls[0][0], pulls[1][0]) and torch.equal(pulls[0][1], pulls[1][1])
    assert math.exp(LARGEST_LOG_RATIO) > 1e9, "no option names a larger ratio"
    assert math.exp(4 * LARGEST_LOG_RATIO) < torch.finfo(torch.float32).max


def far_batches(
    algo: Algorithm, references: Sequence[float] = (-FAR, 0.0, FAR)
) -> Iterator[tuple[Batch, Tensor]]:
    """Batches, and log-probs of a policy, where log-ratios of every pair of policies are 200, -200
    or 0, of all tokens or of every other one. references: log-ratios of reference to behaviour."""
    batch, _ = judged(algo, groups_of(6), off=0.0)
    batch = replace(batch, behavior_logp_BT=batch.behavior_logp_BT - FAR * batch.mask_BT)
    sign_BT = 1.0 - 2.0 * (torch.arange(batch.mask_BT.shape[1]) % 2)
    for one, two, three in product((-FAR, 0.0, FAR), (-FAR, 0.0, FAR), references):
        for part_BT in (batch.mask_BT, batch.mask_BT * sign_BT):
            moved = replace(
                batch,
                proximal_logp_BT=batch.behavior_logp_BT + two * part_BT,
                reference_logp_BT=batch.behavior_logp_BT + three * part_BT,
                lag_BT=batch.mask_BT * 3,
                writer_logp_BT=batch.behavior_logp_BT - two * part_BT,
            )
            yield moved, batch.behavior_logp_BT + one * part_BT


@pytest.mark.parametrize("name", [*NAMES, *FORMS])
def test_losses_and_gradients_are_finite_at_any_log_ratio(name: str) -> None:
    algo = make(name)
    for batch, logp_BT in far_batches(algo):
        loss, by_logp_BT, by_value_BT = pull(algo, batch, logp_BT)
        assert math.isfinite(loss)
        assert by_logp_BT.isfinite().all() and by_value_BT.isfinite().all()


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("name", ["grpo", "proximal_rloo", "rloo", "mdpo"])
def test_corrected_losses_and_measures_are_finite_at_any_log_ratio(
    name: str, correction: str
) -> None:
    algo, given = make(name), CORRECTIONS[correction]()
    for plain, logp_BT in far_batches(algo, references=[FAR]):
        own: Correction = fitted(plain, given)
        batch, factor_BT = corrected(logp_BT, plain, algo, own)
        assert factor_BT.isfinite().all() and batch.credit_BT.isfinite().all()
        loss, by_logp_BT, _ = pull(algo, batch, logp_BT)
        assert math.isfinite(loss) and by_logp_BT.isfinite().all()
        rows = measure(logp_BT, batch, None, factor_BT, split_terms(logp_BT, plain, algo, own))
        assert all(row.isfinite().all() for row in rows.values())


def test_gaps_are_finite_at_any_log_ratio() -> None:
    batch = collate(groups_of(3), pad_id=0, limit=6)
    far_BT = batch.behavior_logp_BT - FAR * batch.mask_BT
    lag_B = torch.zeros(len(batch), dtype=torch.long)
    found = gaps(batch, far_BT, batch.behavior_logp_BT, far_BT, lag_B)
    assert all(math.isfinite(x) for x in found.values() if isinstance(x, float))
    assert found["gap/mismatch_ratio_max"] == 1.0 and found["gap/staleness_ratio_max"] > 1e9


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        *((name, 0.0) for name in ("icepop", "geometric_mask", "m2po", "kpop", "dppo", "split")),
        ("estr", 0.0),
        ("truncated_is", None),
        ("sequence_is", None),
    ],
)
def test_a_token_far_beyond_a_bound_is_treated_as_beyond_it(
    name: str, weight: float | None
) -> None:
    """It is left out, or has the cap. Its probability rose from e^-200 to 1."""
    batch, _ = judged(make("grpo"), groups_of(6), off=0.0)
    far_BT = FAR * batch.mask_BT
    batch = replace(
        batch,
        behavior_logp_BT=-far_BT,
        writer_logp_BT=0 * far_BT,
        credit_BT=batch.mask_BT,
    )
    correction = CORRECTIONS[name]()
    expected = correction.cap if weight is None else weight
    found_BT = correction.weight(far_BT, batch)
    assert (found_BT[batch.mask_BT > 0] == expected).all()
