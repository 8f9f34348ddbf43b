"""Every correction against numbers worked out by hand, and what each may be combined with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.corrections.masks import DPPO, ESTR, M2PO, OPSM, GeometricMask, IcePop, KPop
from rlhf_lab.algos.corrections.proximal import (
    A3PO,
    Decoupled,
    Level,
    NoCorrection,
    Recompute,
    Split,
    Staleness,
)
from rlhf_lab.algos.corrections.truncated import ESSScaled, SequenceIS, TruncatedIS
from rlhf_lab.algos.grpo import GRPO
from rlhf_lab.algos.gspo import GSPO
from rlhf_lab.algos.off_policy import corrected, fitted, is_anchored
from rlhf_lab.algos.rloo import RLOO, ProximalRLOO
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.experiment.rules.checks import check
from rlhf_lab.models.batching import collate
from rlhf_lab.types.data import Batch, CorrectionNeeds, Objective
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.protocols import Algorithm, Correction
from tests.conftest import MakeConfig
from tests.support.examples import group
from tests.support.golden import (
    AWAY,
    BEHAVIOR,
    POLICY,
    PROXIMAL,
    cells,
    flat,
    four_rows,
    output_of,
    padded,
    pessimistic,
)

ALGORITHMS = classes("algo")
CORRECTIONS = classes("correction")

# Log-ratios of two rows, of three tokens and of two.
LOG_RATIO = [[math.log(2), math.log(0.25), 0.0], [math.log(4), math.log(1.5)]]
SHAPE = [3, 2]


def two_rows() -> Batch:
    """The same two rows as a batch with credit, negative in the first row and at one token more."""
    batch = collate([group(0, [[-1.0] * 3, [-1.0] * 2], [0.0, 1.0])], 0)
    return replace(batch, credit_BT=padded([[-1.0] * 3, [0.5, -0.5]], batch.mask_BT))


def weights(correction: Correction, rows: list[list[float]] = LOG_RATIO) -> list[float]:
    batch = two_rows()
    weight_BT = correction.weight(padded(rows, batch.mask_BT), batch)
    assert weight_BT.shape == batch.mask_BT.shape
    return responses(weight_BT)


def responses(value_BT: Tensor) -> list[float]:
    """The numbers of the response tokens, row by row."""
    return [float(x) for row, n in enumerate(SHAPE) for x in value_BT[row, :n]]


@pytest.mark.parametrize(
    ("correction", "by_hand"),
    [
        (NoCorrection(), [1, 1, 1, 1, 1]),
        (Recompute(), [1, 1, 1, 1, 1]),
        (ESSScaled(), [1, 1, 1, 1, 1]),
        (Decoupled(), [2, 0.25, 1, 4, 1.5]),
        (Decoupled(cap=3.0), [2, 0.25, 1, 3, 1.5]),
        (TruncatedIS(cap=1.75), [1.75, 0.25, 1, 1.75, 1.5]),
        # whole rows: 2 * 0.25 * 1 and 4 * 1.5
        (SequenceIS(cap=100.0), [0.5, 0.5, 0.5, 6, 6]),
        (SequenceIS(cap=5.0), [0.5, 0.5, 0.5, 5, 5]),
        (IcePop(low=0.5, high=3.0), [2, 0, 1, 0, 1.5]),
        # probabilities 0.736, 0.092, 0.368, above 1, 0.552 against 0.368: the larger of both KLs is
        # 0.296, 0.281, 0, above 7, 0.070
        (KPop(), [0, 0, 1, 0, 1.5]),
        (KPop(divergence=0.29), [0, 0.25, 1, 0, 1.5]),
        (KPop(divergence=0.3), [2, 0.25, 1, 0, 1.5]),
        # geometric means: 0.5 ** (1 / 3) = 0.794 and 6 ** (1 / 2) = 2.449
        (GeometricMask(low=0.8, high=3.0), [0, 0, 0, 1, 1]),
        (GeometricMask(low=0.79, high=2.4), [1, 1, 1, 0, 0]),
        # squares of log-ratios: 0, 0.164, 0.480, and twice 1.922; means of the least 1, 2, 3 and 5:
        # 0, 0.082, 0.215, 0.898
        (M2PO(moment=0.08), [0, 0, 1, 0, 0]),
        (M2PO(moment=0.09), [0, 0, 1, 0, 1.5]),
        (M2PO(moment=0.22), [2, 0, 1, 0, 1.5]),
        # equal squares go together, though the mean of four is 0.642
        (M2PO(moment=0.7), [2, 0, 1, 0, 1.5]),
        (M2PO(moment=0.9), [2, 0.25, 1, 4, 1.5]),
    ],
)
def test_the_weights_of_a_correction_by_hand(correction: Correction, by_hand: list[float]) -> None:
    assert weights(correction) == pytest.approx(by_hand, abs=1e-6)


def test_m2po_leaves_out_all_where_even_the_least_log_ratio_is_too_large() -> None:
    assert weights(M2PO(moment=0.2), [[1.0, -1.0, 0.5], [2.0, -0.5]]) == [0, 0, 0, 0, 0]


def test_all_rows_of_an_update_decide_what_m2po_leaves_out() -> None:
    batch = two_rows()
    log_ratio_BT = padded(LOG_RATIO, batch.mask_BT)
    batch = replace(batch, proximal_logp_BT=batch.behavior_logp_BT + log_ratio_BT)
    of_update = fitted(batch, M2PO(moment=0.22))
    second = torch.tensor([1])
    part = batch.rows(second)
    assert of_update.weight(log_ratio_BT[second], part).tolist() == [pytest.approx([0, 1.5, 1])]
    # the second row alone: the mean of 0.164 and 1.922 is 1.043
    alone_BT = M2PO(moment=1.1).weight(log_ratio_BT[second], part)
    assert alone_BT.tolist() == [pytest.approx([4, 1.5, 1])]
    assert fitted(batch, TruncatedIS()) == TruncatedIS()


@pytest.mark.parametrize(
    ("correction", "by_hand"),
    [
        # e^-1 = 0.368 before; gains 0.368, -0.276, 0, 1.104, 0.184; credit -, -, -, +, -
        (DPPO(), [2, 0, 1, 0, 1.5]),
        (DPPO(delta=0.28), [2, 0.25, 1, 0, 1.5]),
        (DPPO(delta=0.28, cap=1.2), [1.2, 0.25, 1, 0, 1.2]),
    ],
)
def test_dppo_masks_what_moved_far_the_way_that_its_credit_pushes(
    correction: DPPO, by_hand: list[float]
) -> None:
    assert weights(correction) == pytest.approx(by_hand, abs=1e-6)


def test_dppo_lets_rare_tokens_move_by_large_ratios() -> None:
    batch = two_rows()
    batch = replace(batch, behavior_logp_BT=batch.behavior_logp_BT - 8, credit_BT=batch.mask_BT)
    # a probability of e^-9 times 16 is still small
    weight_BT = DPPO().weight(padded([[math.log(16)] * 3, [0.0] * 2], batch.mask_BT), batch)
    assert responses(weight_BT) == pytest.approx([16, 16, 16, 1, 1], abs=1e-4)


def test_kpop_lets_rare_tokens_differ_by_large_ratios() -> None:
    batch = two_rows()
    batch = replace(batch, behavior_logp_BT=batch.behavior_logp_BT - 8)
    weight_BT = KPop().weight(padded([[math.log(16)] * 3, [0.0] * 2], batch.mask_BT), batch)
    assert responses(weight_BT) == pytest.approx([16, 16, 16, 1, 1], abs=1e-4)
    assert weights(IcePop(), [[math.log(16)] * 3, [0.0] * 2]) == [0, 0, 0, 1, 1]


def test_kpop_is_finite_at_certain_tokens() -> None:
    batch = two_rows()
    batch = replace(batch, behavior_logp_BT=torch.zeros_like(batch.mask_BT))
    rows = [[0.0, -1e-4, -40.0], [0.0, 0.0]]
    weight_BT = KPop().weight(padded(rows, batch.mask_BT), batch)
    assert responses(weight_BT) == pytest.approx([1, math.exp(-1e-4), 0, 1, 1], abs=1e-6)


@pytest.mark.parametrize(
    ("correction", "by_hand"),
    [
        # squares 0.480, 1.922, 0, 1.922, 0.164 over 0.51, 2.01, 0.01, 1.91, 0.11
        (ESTR(), [1, 1, 1, 0, 0]),
        (ESTR(bound=1.01), [1, 1, 1, 1, 0]),
        (ESTR(bound=1.01, floor=0.07), [1, 1, 1, 1, 1]),
        (ESTR(bound=0.945), [1, 0, 1, 0, 0]),
    ],
)
def test_estr_lets_tokens_move_as_far_as_their_entropy(
    correction: ESTR, by_hand: list[float]
) -> None:
    batch = two_rows()
    batch = replace(batch, entropy_BT=padded([[0.5, 2.0, 0.0], [1.9, 0.1]], batch.mask_BT))
    weight_BT = correction.weight(padded(LOG_RATIO, batch.mask_BT), batch)
    assert responses(weight_BT) == by_hand


def test_estr_masks_the_loss_whose_ratio_is_over_the_behaviour() -> None:
    algo = GRPO(clip=0.2, kl_coef=0.0)
    batch = four_rows(algo)
    assert not is_anchored(algo, ESTR())
    made, factor_BT = corrected(logp(POLICY, batch), batch, algo, ESTR(bound=1e6))
    assert torch.equal(factor_BT, torch.ones_like(batch.mask_BT))
    assert torch.equal(made.proximal_logp_BT, batch.proximal_logp_BT)


def test_a3po_takes_the_behaviour_less_the_older_a_token_is() -> None:
    algo = GRPO(clip=0.2, kl_coef=0.0)
    batch = four_rows(algo)
    lag = [[0.0, 1.0, 2.0], [4.0], [2.0, 1.0], [4.0, 4.0, 0.0]]
    share = [[0.0, 0.0, 0.5], [0.75], [0.5, 0.0], [0.75, 0.75, 0.0]]
    batch = replace(batch, lag_BT=padded(lag, batch.mask_BT))
    assert not is_anchored(algo, A3PO())
    made, factor_BT = corrected(logp(POLICY, batch), batch, algo, A3PO())
    moved = [s * x for s, x in zip(flat(share), log_ratios(POLICY, BEHAVIOR), strict=True)]
    expected = [b + m for b, m in zip(flat(BEHAVIOR), moved, strict=True)]
    assert cells(made.proximal_logp_BT) == pytest.approx(expected, abs=1e-6)
    weight = [math.exp(m) for m in moved]
    assert cells(factor_BT * batch.mask_BT) == pytest.approx(weight, abs=1e-6)
    credit = [c * w for c, w in zip(cells(batch.credit_BT), weight, strict=True)]
    assert cells(made.credit_BT) == pytest.approx(credit, abs=1e-6)
    # weight times the loss's ratio is policy over behaviour, whatever the age
    ratio_BT = (padded(POLICY, batch.mask_BT) - made.proximal_logp_BT).exp() * factor_BT
    whole = [math.exp(x) for x in log_ratios(POLICY, BEHAVIOR)]
    assert cells(ratio_BT * batch.mask_BT) == pytest.approx(whole, abs=1e-6)
    capped = corrected(logp(POLICY, batch), batch, algo, A3PO(cap=1.01))[1]
    assert float(capped.max()) == pytest.approx(1.01)
    assert not made.proximal_logp_BT.requires_grad


# Of the log-ratios above, what trainer and generator differ by at equal weights.
MISMATCH = [[math.log(2), math.log(0.25), math.log(0.8)], [0.0, math.log(3)]]


@pytest.mark.parametrize(
    ("correction", "by_hand"),
    [
        # mismatch 2, 0.25, 0.8, 1, 3 and staleness 1, 1, 1.25, 4, 0.5
        (Split(), [2, 0, 1, 2, 1.5]),
        (Split(low=0.2, cap=10.0), [2, 0.25, 1, 4, 1.5]),
        (Split(high=2.5, cap=1.2), [2, 0, 0.8 * 1.2, 1.2, 0]),
        (Split(staleness=Staleness.clip), [2, 0, 0.8, 1, 3]),
        (Split(staleness=Staleness.clip, low=0.9, high=2.5), [2, 0, 0, 1, 0]),
    ],
)
def test_mismatch_and_staleness_have_a_bound_each(correction: Split, by_hand: list[float]) -> None:
    batch = two_rows()
    writer_BT = batch.behavior_logp_BT + padded(MISMATCH, batch.mask_BT)
    batch = replace(batch, writer_logp_BT=writer_BT)
    weight_BT = correction.weight(padded(LOG_RATIO, batch.mask_BT), batch)
    assert responses(weight_BT) == pytest.approx(by_hand, abs=1e-6)
    # the clip of the loss bounds staleness only if its ratio begins at the writer
    is_clip = correction.staleness is Staleness.clip
    assert correction.needs == CorrectionNeeds(writer_logp=True, proximal=is_clip)
    found, _ = corrected(batch.behavior_logp_BT, batch, GRPO(), correction)
    begins_BT = writer_BT if is_clip else batch.proximal_logp_BT
    assert torch.equal(found.proximal_logp_BT, begins_BT)
    terms = correction.terms(padded(LOG_RATIO, batch.mask_BT), batch)
    assert responses(terms["mismatch"]) == pytest.approx([2, 0.25, 0.8, 1, 3])
    assert responses(terms["staleness"]) == pytest.approx([1, 1, 1.25, 4, 0.5])


def test_each_ratio_of_split_counts_the_tokens_that_its_own_bound_acts_on() -> None:
    batch = two_rows()
    writer_BT = batch.behavior_logp_BT + padded(MISMATCH, batch.mask_BT)
    for how, capped in ((Staleness.cap, [0, 0, 1, 1, 0]), (Staleness.clip, [0, 0, 0, 0, 0])):
        correction = Split(cap=1.2, staleness=how)
        terms = correction.terms(
            padded(LOG_RATIO, batch.mask_BT), replace(batch, writer_logp_BT=writer_BT)
        )
        assert responses(terms["mismatch_bounded"]) == [0, 1, 0, 0, 0]
        assert responses(terms["staleness_bounded"]) == capped
    assert Objective.likelihood in Split().corrects
    assert Split(staleness=Staleness.clip).corrects == {Objective.token_ratio}


def test_opsm_masks_only_negative_credit_of_rows_that_became_unlikely() -> None:
    # by nats per token: row 0 by log(2) / 3 = 0.231 less likely, row 1 by log(6) / 2 more
    assert weights(OPSM(delta=0.2)) == [0, 0, 0, 1, 1]
    assert weights(OPSM(delta=0.25)) == [1, 1, 1, 1, 1]
    # both rows unlikely: of the second, only the token of negative credit is masked
    both = [[-1.0, -1.0, -1.0], [-1.0, -1.0]]
    assert weights(OPSM(delta=0.2), both) == [0, 0, 0, 1, 0]
    # so far off the other way that nothing is masked
    assert weights(OPSM(delta=0.2), [[1.0, 1.0, 1.0], [1.0, 1.0]]) == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("power", "by_hand"), [(1.0, 36 / (3 * 14)), (0.5, math.sqrt(36 / (3 * 14)))]
)
def test_the_step_of_ess_scaled_by_hand(power: float, by_hand: float) -> None:
    # ratios 1, 2, 3: (1 + 2 + 3)^2 over 3 (1 + 4 + 9); a common factor changes nothing
    log_ratio_B = torch.tensor([0.0, math.log(2), math.log(3)])
    for shift in (0.0, -70.0, 300.0):
        step = ESSScaled(power=power).step(log_ratio_B + shift)
        assert step == pytest.approx(by_hand, abs=1e-5)


def test_ess_scaled_makes_full_steps_on_equal_ratios_and_small_ones_where_one_rules() -> None:
    assert ESSScaled().step(torch.full((5,), -0.7)) == 1.0
    assert ESSScaled().step(torch.tensor([2.0])) == 1.0
    one_rules = torch.tensor([50.0, 0.0, 0.0, 0.0])
    assert ESSScaled(power=1.0).step(one_rules) == pytest.approx(0.25)
    assert ESSScaled().step(one_rules) == pytest.approx(0.5)


@pytest.mark.parametrize("name", sorted(set(CORRECTIONS) - {"ess_scaled"}))
def test_other_corrections_leave_the_step_alone(name: str) -> None:
    assert CORRECTIONS[name]().step(torch.tensor([0.0, 3.0])) == 1.0


def logp(policy: list[list[float]], batch: Batch) -> Tensor:
    return padded(policy, batch.mask_BT).requires_grad_()


def log_ratios(new: list[list[float]], old: list[list[float]]) -> list[float]:
    return [x - y for x, y in zip(flat(new), flat(old), strict=True)]


def test_where_the_loss_takes_ratios_the_weight_leads_from_behaviour_to_proximal() -> None:
    algo, correction = GRPO(), TruncatedIS(cap=1.06)
    batch = four_rows(algo)
    assert is_anchored(algo, correction)
    made, factor_BT = corrected(logp(POLICY, batch), batch, algo, correction)
    # proximal over behaviour: 0.05, -0.05, 0.05; 0.05; -0.05, -0.05; 0.1 (cut), -0.1, -0.05
    by_hand = [min(math.exp(x), 1.06) for x in log_ratios(PROXIMAL, BEHAVIOR)]
    assert by_hand.count(1.06) == 1
    found = cells(factor_BT * batch.mask_BT)
    assert found == pytest.approx(by_hand, abs=1e-6)
    credit = [c * w for c, w in zip(cells(batch.credit_BT), by_hand, strict=True)]
    assert cells(made.credit_BT) == pytest.approx(credit, abs=1e-6)
    assert not made.credit_BT.requires_grad


def test_where_the_loss_takes_no_ratio_the_weight_leads_all_the_way_to_the_policy() -> None:
    algo, correction = RLOO(), TruncatedIS(cap=1.4)
    batch = four_rows(algo)
    assert not is_anchored(algo, correction)
    made, factor_BT = corrected(logp(POLICY, batch), batch, algo, correction)
    # policy over behaviour: 0.4 (cut), -0.1, -0.05; 0.4 (cut); -0.35, 0.05; 0.05, -0.4, -0.1
    by_hand = [min(math.exp(x), 1.4) for x in log_ratios(POLICY, BEHAVIOR)]
    assert by_hand.count(1.4) == 2
    assert cells(factor_BT * batch.mask_BT) == pytest.approx(by_hand, abs=1e-6)
    credit = [c * w for c, w in zip(cells(batch.credit_BT), by_hand, strict=True)]
    assert cells(made.credit_BT) == pytest.approx(credit, abs=1e-6)
    assert not made.credit_BT.requires_grad


def test_a_sequence_ratio_is_bridged_by_the_ratio_of_the_whole_response() -> None:
    algo = ProximalRLOO(kl_coef=0.0)
    batch = four_rows(algo)
    made, _ = corrected(logp(POLICY, batch), batch, algo, SequenceIS(cap=1.04))
    # proximal over behaviour of whole rows: 0.05 and 0.05 (cut), -0.1, -0.05
    by_hand = [1.04, 1.04, math.exp(-0.1), math.exp(-0.05)]
    credit = [a * w for a, w in zip([-2.0, 2.0, 1.5, -1.5], by_hand, strict=True)]
    assert made.credit_BT[:, 0].tolist() == pytest.approx(credit, abs=1e-6)


@pytest.mark.parametrize(
    ("algo", "level", "log_weights"),
    [
        # proximal over behaviour of whole rows of 3, 1, 2 and 3 tokens
        (ProximalRLOO(kl_coef=0.0), Level.response, (0.05, 0.05, -0.1, -0.05)),
        (GSPO(), Level.mean, (0.05 / 3, 0.05, -0.1 / 2, -0.05 / 3)),
    ],
)
def test_a_ratio_of_responses_is_decoupled_by_one_weight_a_response(
    algo: Algorithm, level: Level, log_weights: tuple[float, ...]
) -> None:
    batch = four_rows(algo)
    correction = Decoupled(level=level)
    assert is_anchored(algo, correction)
    made, _ = corrected(logp(POLICY, batch), batch, algo, correction)
    first = batch.credit_BT[:, 0].tolist()
    credit = [c * math.exp(w) for c, w in zip(first, log_weights, strict=True)]
    assert made.credit_BT[:, 0].tolist() == pytest.approx(credit, abs=1e-6)
    assert Decoupled().corrects == {Objective.token_ratio}
    assert correction.corrects == {Objective.token_ratio, Objective.sequence_ratio}


def test_the_cap_of_the_decoupled_correction_holds_for_responses() -> None:
    algo = ProximalRLOO(kl_coef=0.0)
    batch = four_rows(algo)
    capped = corrected(logp(POLICY, batch), batch, algo, SequenceIS(cap=1.04))[0]
    same = Decoupled(level=Level.response, cap=1.04)
    made = corrected(logp(POLICY, batch), batch, algo, same)[0]
    assert torch.equal(made.credit_BT, capped.credit_BT)


def test_opsm_looks_at_the_policy_even_where_the_loss_takes_ratios() -> None:
    algo, correction = GRPO(), OPSM(delta=0.1)
    batch = four_rows(algo)
    assert not is_anchored(algo, correction)
    made, _ = corrected(logp(POLICY, batch), batch, algo, correction)
    # policy over behaviour per token: row 2 (good) -0.15, row 3 (bad) -0.15; row 0 (bad) 0.083.
    # Proximal over behaviour would mask nothing: row 3 is at -0.017.
    zero = [x == 0 for x in cells(made.credit_BT)]
    assert zero == [False] * 6 + [True] * 3


def test_the_decoupled_loss_by_hand() -> None:
    algo = GRPO(clip=0.2, kl_coef=0.0, epsilon=1e-3)
    batch = four_rows(algo)
    made, _ = corrected(logp(POLICY, batch), batch, algo, Decoupled())
    # of (1, 3) and (2, 0.5): one or three quarters, over the deviation
    first, second = 1 / (math.sqrt(2.0) + 1e-3), 0.75 / (0.75 * math.sqrt(2.0) + 1e-3)
    advantage = [-first, first, second, -second]
    expected = 0.0
    for row in range(4):
        terms = [
            math.exp(p - b) * pessimistic(math.exp(away), advantage[row], 0.2, 0.2)
            for p, b, away in zip(PROXIMAL[row], BEHAVIOR[row], AWAY[row], strict=True)
        ]
        expected -= sum(terms) / len(terms) / 4
    output = output_of(algo, POLICY, made)
    assert float(output.loss) == pytest.approx(expected, abs=1e-6)
    assert output.clipped_BT is not None
    # the clip looks at policy over proximal, whatever the behaviour was
    assert cells(output.clipped_BT) == [0, 0, 0, 1, 0, 0, 0, 1, 0]


def pairs() -> list[tuple[str, str]]:
    """Every algorithm with every correction that is for its loss."""
    objectives = {name: algo().objective for name, algo in ALGORITHMS.items()}
    return [
        (algo, name)
        for name, correction in CORRECTIONS.items()
        for algo, objective in objectives.items()
        if objective in correction().corrects
    ]


@pytest.mark.parametrize(("algo_name", "correction_name"), pairs())
def test_a_correction_is_one_where_all_policies_agree(algo_name: str, correction_name: str) -> None:
    algo: Algorithm = ALGORITHMS[algo_name]()
    correction: Correction = CORRECTIONS[correction_name]()
    batch = four_rows(algo)
    batch = replace(batch, proximal_logp_BT=batch.behavior_logp_BT)
    made, factor_BT = corrected(batch.behavior_logp_BT, batch, algo, correction)
    assert torch.equal(factor_BT, torch.ones_like(batch.mask_BT))
    assert torch.equal(made.credit_BT, batch.credit_BT)
    assert correction.step(torch.zeros(len(batch))) == 1.0


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: TruncatedIS(cap=0.0), r"correction\.cap=0\.0 "),
        (lambda: TruncatedIS(cap=math.nan), r"correction\.cap=nan "),
        (lambda: SequenceIS(cap=-1.0), r"correction\.cap=-1\.0 "),
        (lambda: Decoupled(cap=-1.0), r"correction\.cap=-1\.0 "),
        (lambda: IcePop(low=-0.1), r"correction\.low=-0\.1 "),
        (lambda: IcePop(low=2.0, high=2.0), r"correction\.high=2\.0 .*above 2"),
        (lambda: GeometricMask(low=-1.0), r"correction\.low=-1\.0 "),
        (lambda: GeometricMask(low=1.0, high=0.5), r"correction\.high=0\.5 .*above 1"),
        (lambda: OPSM(delta=0.0), r"correction\.delta=0\.0 "),
        (lambda: M2PO(moment=0.0), r"correction\.moment=0\.0 "),
        (lambda: A3PO(cap=-1.0), r"correction\.cap=-1\.0 "),
        (lambda: DPPO(delta=1.5), r"correction\.delta=1\.5 "),
        (lambda: KPop(divergence=0.0), r"correction\.divergence=0\.0 "),
        (lambda: ESTR(bound=0.0), r"correction\.bound=0\.0 "),
        (lambda: ESTR(floor=0.0), r"correction\.floor=0\.0 "),
        (lambda: Split(cap=0.0), r"correction\.cap=0\.0 "),
        (lambda: Split(low=2.0, high=2.0), r"correction\.high=2\.0 .*above 2"),
        (lambda: ESSScaled(power=0.0), r"correction\.power=0\.0 "),
    ],
)
def test_options_of_corrections_out_of_range_are_refused(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        make()


def test_every_correction_says_what_it_is_for_and_has_its_own_name() -> None:
    for name, correction in CORRECTIONS.items():
        assert correction().name == name
        assert correction().corrects <= frozenset(Objective)
        assert dataclasses.is_dataclass(correction)


def test_every_algorithm_and_correction_go_together_or_are_refused_with_a_remedy(
    config_of: MakeConfig,
) -> None:
    config = config_of()
    for algo_name, correction_name in [(a, c) for a in ALGORITHMS for c in CORRECTIONS]:
        named = {"teacher": "somewhere"} if algo_name == "distill" else {}
        algo, correction = ALGORITHMS[algo_name](**named), CORRECTIONS[correction_name]()
        pair = replace(config, algo=algo, correction=correction)
        if algo.objective in correction.corrects:
            check(pair)
            continue
        with pytest.raises(UserError) as refused:
            check(pair)
        message = str(refused.value)
        assert f"correction={correction_name} with algo={algo_name}: " in message
        remedy = message.split("pass correction=")[1].split()[0]
        check(replace(pair, correction=CORRECTIONS[remedy]()))
