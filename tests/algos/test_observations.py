"""Observations between actions: no correction and no loss depends on what they are, or are given.

A model reads whole texts, so that it has a log-prob for each token of an observation too; only what
stands at the policy's own tokens may reach a correction, a loss or a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rlhf_lab.algos.corrections.masks import DPPO, ESTR, M2PO, OPSM, GeometricMask, IcePop, KPop
from rlhf_lab.algos.corrections.proximal import A3PO, Decoupled, NoCorrection, Recompute, Split
from rlhf_lab.algos.corrections.truncated import ESSScaled, SequenceIS, TruncatedIS
from rlhf_lab.algos.off_policy import corrected, fitted
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.models.batching import collate
from rlhf_lab.models.forward import of_policy
from rlhf_lab.types.data import Batch, PolicyOutput, Writer
from rlhf_lab.types.protocols import Algorithm, Correction
from rlhf_lab.types.samples import Group, Sample
from tests.support.environments import acted, prompt
from tests.support.examples import credited
from tests.support.golden import padded

ALGORITHMS = classes("algo")
CORRECTIONS = classes("correction")
ABSURD = 40.0

# Of two episodes, of three tokens in two turns and of two tokens in two turns.
LOG_RATIO = [[math.log(2), math.log(0.25), 0.0], [math.log(4), math.log(1.5)]]
OBSERVED: list[tuple[tuple[int, tuple[int, ...]], ...]] = [
    ((0, (20, 21)), (2, (22,))),
    ((1, (23, 24, 25)),),
]


def two_episodes(is_observed: bool = True) -> Batch:
    """Rows with credit, whose tokens were all written with a log-prob of -1."""
    turns = [[(1, 0.0), (2, 0.0)], [(0, 0.0), (1, 0.0)]]
    samples = tuple(
        acted(tokens, observed if is_observed else (), ends)
        for tokens, observed, ends in zip(([5, 6, 7], [8, 9]), OBSERVED, turns, strict=True)
    )
    batch = collate([Group(prompt(), samples, (0.0, 1.0))], 0)
    return replace(batch, credit_BT=padded([[-1.0] * 3, [0.5, -0.5]], batch.mask_BT))


def spread(rows: Sequence[Sequence[float]], batch: Batch, at_observations: float) -> Tensor:
    """Numbers of the policy's tokens at their columns of the whole text, BU."""
    text_BU = torch.full(batch.text_BU.shape, at_observations)
    text_BU[batch.writer_BU == Writer.policy] = torch.tensor([x for row in rows for x in row])
    return text_BU


def read(rows: Sequence[Sequence[float]], batch: Batch, at_observations: float) -> Tensor:
    """The same as the pass of a model finds them, at the policy's tokens, BT."""
    text_BU = spread(rows, batch, at_observations)
    return of_policy(PolicyOutput(text_BU, torch.zeros_like(text_BU)), batch).logp_BT


# Of the log-ratios above, what trainer and generator differ by at equal weights.
MISMATCH = [[math.log(2), math.log(0.25), math.log(0.8)], [0.0, math.log(3)]]
ENTROPY = [[0.5, 2.0, 0.0], [1.9, 0.1]]
LAG = [[0.0, 1.0, 2.0], [4.0, 0.0]]
BY_HAND: dict[str, tuple[Correction, list[float]]] = {
    "none": (NoCorrection(), [1, 1, 1, 1, 1]),
    "recompute": (Recompute(), [1, 1, 1, 1, 1]),
    "ess_scaled": (ESSScaled(), [1, 1, 1, 1, 1]),
    "decoupled": (Decoupled(cap=3.0), [2, 0.25, 1, 3, 1.5]),
    "truncated_is": (TruncatedIS(cap=1.75), [1.75, 0.25, 1, 1.75, 1.5]),
    # whole episodes: 2 * 0.25 * 1 and 4 * 1.5
    "sequence_is": (SequenceIS(cap=5.0), [0.5, 0.5, 0.5, 5, 5]),
    "icepop": (IcePop(low=0.5, high=3.0), [2, 0, 1, 0, 1.5]),
    # the larger of both KLs: 0.296, 0.281, 0, above 7, 0.070
    "kpop": (KPop(divergence=0.29), [0, 0.25, 1, 0, 1.5]),
    # means of three and of two tokens: 0.5 ** (1 / 3) = 0.794 and 6 ** (1 / 2) = 2.449
    "geometric_mask": (GeometricMask(low=0.79, high=2.4), [1, 1, 1, 0, 0]),
    # means of the least 1, 2, 3 and 5 squares: 0, 0.082, 0.215, 0.898
    "m2po": (M2PO(moment=0.22), [2, 0, 1, 0, 1.5]),
    # gains of probability 0.368, -0.276, 0, 1.104, 0.184; credit -, -, -, +, -
    "dppo": (DPPO(delta=0.28), [2, 0.25, 1, 0, 1.5]),
    # squares 0.480, 1.922, 0, 1.922, 0.164 over 0.51, 2.01, 0.01, 1.91, 0.11
    "estr": (ESTR(), [1, 1, 1, 0, 0]),
    # less likely by log(2) / 3 = 0.231 a token, and more likely
    "opsm": (OPSM(delta=0.2), [0, 0, 0, 1, 1]),
    # from one round on, the share 1 - 1 / lag of the log-ratio: 0, 0, 1/2, 3/4, 0
    "a3po": (A3PO(), [1, 1, 1, 4**0.75, 1]),
    # mismatch 2, 0.25, 0.8, 1, 3 and staleness 1, 1, 1.25, 4, 0.5
    "split": (Split(), [2, 0, 1, 2, 1.5]),
}


@pytest.mark.parametrize("name", sorted(CORRECTIONS))
def test_the_weights_of_a_correction_on_episodes_by_hand(name: str) -> None:
    correction, by_hand = BY_HAND[name]
    batch = two_episodes()
    assert isinstance(correction, CORRECTIONS[name]) and batch.has_environment
    for at_observations in (0.0, ABSURD, -ABSURD):
        made = replace(
            batch,
            entropy_BT=read(ENTROPY, batch, at_observations),
            lag_BT=padded(LAG, batch.mask_BT),
        )
        log_ratio_BT = read(LOG_RATIO, batch, at_observations)
        mismatch_BT = read(MISMATCH, batch, at_observations)
        made = replace(made, writer_logp_BT=batch.behavior_logp_BT + mismatch_BT)
        weight_BT = correction.weight(log_ratio_BT, made)
        found = [float(x) for row, n in enumerate((3, 2)) for x in weight_BT[row, :n]]
        assert found == pytest.approx(by_hand, abs=1e-6)


def pairs() -> Iterator[tuple[str, str]]:
    """Every algorithm with every correction that is for its loss."""
    for name, correction in CORRECTIONS.items():
        for algo, made in ALGORITHMS.items():
            if made().objective in correction().corrects:
                yield algo, name


def episodes(is_observed: bool) -> list[Group]:
    """Groups of three episodes of three turns, with one to three tokens each."""
    rng = torch.Generator().manual_seed(3)
    found = []
    for number in range(3):
        samples: list[Sample] = []
        for _ in range(3):
            sizes = torch.randint(1, 4, (3,), generator=rng).cumsum(0).tolist()
            observed = [(0, (20,)), (sizes[0], (21, 22, 23)), (sizes[1], (24, 25))]
            ends = [(size - 1, 0.0) for size in sizes]
            logps = (-torch.rand(sizes[-1], generator=rng)).tolist()
            one = acted([5 + number] * sizes[-1], observed if is_observed else (), ends)
            samples.append(replace(one, logps=tuple(logps)))
        rewards = torch.randn(3, generator=rng).tolist()
        found.append(Group(prompt(number), tuple(samples), tuple(rewards)))
    return found


def noise(batch: Batch, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(batch.mask_BT.shape, generator=rng) * 0.3 * batch.mask_BT


def learnt(
    algo: Algorithm, correction: Correction, is_observed: bool, at_observations: float = 0.0
) -> tuple[float, Tensor, Tensor]:
    """Loss, and its gradient by the log-probs of the policy's tokens, and of all others."""
    groups = episodes(is_observed)
    batch = collate(groups, pad_id=0, limit=12)
    moved_BT = batch.behavior_logp_BT + noise(batch, 3)
    batch = replace(
        batch,
        reference_logp_BT=batch.behavior_logp_BT + noise(batch, 1),
        proximal_logp_BT=batch.behavior_logp_BT + noise(batch, 2),
        value_BT=noise(batch, 4),
        entropy_BT=noise(batch, 5).abs(),
        lag_BT=2 * batch.mask_BT,
    )
    if correction.needs.writer_logp:
        batch = replace(batch, writer_logp_BT=batch.behavior_logp_BT + noise(batch, 6))
    kept, keep_B = credited(algo, groups, batch)
    rows = [row[mask > 0].tolist() for row, mask in zip(moved_BT, batch.mask_BT, strict=True)]
    rows = [row for row, is_kept in zip(rows, keep_B.tolist(), strict=True) if is_kept]
    given = spread(rows, kept, at_observations) if is_observed else moved_BT[keep_B]
    given.requires_grad_()
    value_BT = kept.value_BT + 0.1 * kept.mask_BT
    found = of_policy(PolicyOutput(given, torch.zeros_like(given)), kept)
    made, _ = corrected(found.logp_BT, kept, algo, fitted(kept, correction))
    output = PolicyOutput(
        *(found.logp_BT, found.entropy_BT, value_BT),
        top_logp_BTK=found.logp_BT.unsqueeze(2),
        reference_top_logp_BTK=made.reference_logp_BT.unsqueeze(2),
    )
    loss = algo.loss(output, made).loss
    loss.backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None
    is_own = kept.writer_BU == Writer.policy if is_observed else kept.mask_BT > 0
    return float(loss.detach()), given.grad[is_own], given.grad[~is_own]


@pytest.mark.parametrize(("algo_name", "correction_name"), list(pairs()))
def test_observations_change_neither_loss_nor_gradient(
    algo_name: str, correction_name: str
) -> None:
    """Whether they are there, and whatever log-probs a model gives them; bit for bit."""
    algo, correction = ALGORITHMS[algo_name](), CORRECTIONS[correction_name]()
    loss, gradient, _ = learnt(algo, correction, is_observed=False)
    for at_observations in (0.0, -ABSURD):
        same, own, others = learnt(algo, correction, True, at_observations)
        assert same == loss and torch.equal(own, gradient)
        assert len(others) and not others.any()
    assert math.isfinite(loss)
