"""Measures of off-policyness: how far the rows of an update are from the policy trained on them.

Three distances that are all called "the KL" in the literature:

    behaviour -> policy     how off-policy the samples are, whatever the cause
    policy -> reference     how far training has moved the policy
    the three gaps          the first one, split by cause (see `gaps`)

All are in nats per token, weighted as in the loss. k1 and k3 are estimators of the KL on the rows'
own samples (http://joschu.net/blog/kl-approx.html). Ratios are policy over behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlhf_lab.algos.declared import seen_by_correction
from rlhf_lab.types.data import Batch, Metrics, Objective
from rlhf_lab.types.protocols import Correction, Loss

if TYPE_CHECKING:
    from torch import Tensor

SUMS = {
    "ratio": "ratio/mean",
    "clipped": "ratio/clipped",
    "factor": "correction/weight",
    "zeroed": "correction/zeroed",
    "mismatch": "correction/mismatch",
    "mismatch_bounded": "correction/mismatch_bounded",
    "staleness": "correction/staleness",
    "staleness_bounded": "correction/staleness_bounded",
    "behavior_k1": "kl/behavior_policy_k1",
    "behavior_k3": "kl/behavior_policy_k3",
    "reference_k1": "kl/policy_reference_k1",
    "reference_k3": "kl/policy_reference_k3",
}
Rows = Mapping[str, "Tensor"]
# exp(22) is above every cap and interval that an option can name (1e9), and any clip has removed
# the gradient long before. Its fourth power is a finite float32, so that a gradient by the product
# of a ratio and a correction's weight has a norm.
LARGEST_LOG_RATIO = 22.0


def is_anchored(algo: Loss, correction: Correction) -> bool:
    """Whether the loss's ratios are against the policy at the round's start, not the behaviour."""
    takes_ratios = algo.objective in (Objective.token_ratio, Objective.sequence_ratio)
    return correction.anchors_at_start and takes_ratios


def corrected(
    logp_BT: Tensor, batch: Batch, algo: Loss, correction: Correction
) -> tuple[Batch, Tensor]:
    """The batch with the correction's weights multiplied into its credit, and the weights, BT.

    The weights cover the distance from the behaviour to the denominator of the loss's own ratio:
    the anchored proximal policy, or else the policy itself. They multiply the credit alone, so that
    KL penalties and value errors stay as they are.
    """
    log_ratio_BT = log_bridge(logp_BT, batch, algo, correction)
    seen = seen_by_correction(batch, correction)
    factor_BT = correction.weight(log_ratio_BT, seen)
    if correction.needs.proximal:
        batch = replace(batch, proximal_logp_BT=correction.proximal(log_ratio_BT, seen))
    return replace(batch, credit_BT=batch.credit_BT * factor_BT), factor_BT


def log_bridge(logp_BT: Tensor, batch: Batch, algo: Loss, correction: Correction) -> Tensor:
    """The log-ratio that a correction covers, BT, from the behaviour to where the loss begins."""
    denominator_BT = batch.proximal_logp_BT if is_anchored(algo, correction) else logp_BT.detach()
    return (denominator_BT - batch.behavior_logp_BT) * batch.mask_BT


def split_terms(
    logp_BT: Tensor, batch: Batch, algo: Loss, correction: Correction
) -> Mapping[str, Tensor]:
    """Measures of each token that a correction of several ratios adds to those of `measure`."""
    if not correction.needs.writer_logp:
        return {}
    return correction.terms(log_bridge(logp_BT, batch, algo, correction), batch)


def fitted(batch: Batch, correction: Correction) -> Correction:
    """The correction of an update, from all of its rows, before they are split into
    micro-batches."""
    if not correction.needs.whole_update:
        return correction
    log_ratio_BT = (batch.proximal_logp_BT - batch.behavior_logp_BT) * batch.mask_BT
    return correction.fitted(log_ratio_BT, seen_by_correction(batch, correction))


def bounded(log_ratio: Tensor) -> Tensor:
    """Log-ratios in nats, at most LARGEST_LOG_RATIO, above which they have no gradient."""
    return log_ratio.clamp(max=LARGEST_LOG_RATIO)


def ratio_of(log_ratio: Tensor) -> Tensor:
    """exp of log-ratios in nats, finite whatever they are."""
    return bounded(log_ratio).exp()


def k3_terms(log_ratio: Tensor) -> Tensor:
    """r - 1 - log r of log-ratios log r: terms of the k3 estimator, never negative, and finite."""
    import torch

    log_ratio = bounded(log_ratio)
    return torch.expm1(log_ratio) - log_ratio


def measure(
    logp_BT: Tensor,
    batch: Batch,
    clipped_BT: Tensor | None,
    factor_BT: Tensor | None = None,
    more: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Measures of every row, B each: token-weighted sums, the largest ratio, the log-ratio of the
    whole response. clipped_BT: see LossOutput. factor_BT: the weights of `corrected`. more: terms
    of `split_terms`."""
    import torch

    with torch.no_grad():
        log_ratio_BT = (logp_BT - batch.behavior_logp_BT) * batch.mask_BT
        drift_BT = (
            (logp_BT - batch.reference_logp_BT) * batch.mask_BT * batch.has_reference_B.unsqueeze(1)
        )
        ratio_BT = ratio_of(log_ratio_BT)
        factor_BT = torch.ones_like(ratio_BT) if factor_BT is None else factor_BT
        terms = {
            "weight": torch.ones_like(ratio_BT),
            "known": batch.has_reference_B.to(ratio_BT.dtype).unsqueeze(1).expand_as(ratio_BT),
            "ratio": ratio_BT,
            "ratio_squared": ratio_BT.square(),
            "clipped": torch.zeros_like(ratio_BT) if clipped_BT is None else clipped_BT,
            "factor": factor_BT,
            "zeroed": (factor_BT == 0).to(ratio_BT.dtype),
            "behavior_k1": -log_ratio_BT,
            "behavior_k3": k3_terms(log_ratio_BT),
            "reference_k1": drift_BT,
            "reference_k3": k3_terms(-drift_BT),
            **(more or {}),
        }
        rows = {name: (term * batch.weight_BT).sum(dim=1) for name, term in terms.items()}
        rows["ratio_max"] = (ratio_BT * batch.mask_BT).amax(dim=1)
        rows["log_ratio_sequence"] = log_ratio_BT.sum(dim=1)
    return rows


def summary(parts: Sequence[Rows], lags: Sequence[Tensor]) -> Metrics:
    """Metrics over the rows of some updates, and the same for the rows of each lag.

    lags: age of each row in updates, one tensor per update.
    """
    import torch

    if not parts:
        return {}
    rows = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    lag_B = torch.cat(list(lags))
    by_lag: dict[str, dict[str, float]] = {}
    for lag in sorted(set(lag_B.tolist())):
        for name, value in means({n: row[lag_B == lag] for n, row in rows.items()}).items():
            by_lag.setdefault(f"by_lag/{name}", {})[str(lag)] = value
    return {**means(rows), **by_lag}


def means(rows: Rows) -> dict[str, float]:
    """Weighted means, the largest ratio, and effective sample sizes as shares of the whole.

    ess: (sum w r)^2 / (sum w r^2) over tokens; ess_sequences: the same over whole-sequence ratios,
    each sequence counted once. One means on-policy.
    """
    weight = rows["weight"].sum().clamp(min=1e-30)
    known = rows["known"].sum()
    # Rows without reference log-probs are left out of the metrics of the reference.
    of = {n: known if n.startswith("reference") else weight for n in SUMS if n in rows}
    metrics = {SUMS[name]: float(rows[name].sum() / of[name]) for name in of if of[name] > 0}
    ratio = rows["ratio"].sum() / weight
    log_ratio_B = rows["log_ratio_sequence"]
    sequence_B = (log_ratio_B - log_ratio_B.max()).exp()
    return metrics | {
        "ratio/max": float(rows["ratio_max"].max()),
        "ratio/ess": float(ratio.square() / (rows["ratio_squared"].sum() / weight)),
        "ratio/ess_sequences": float(
            sequence_B.sum().square() / (sequence_B.square().sum() * len(sequence_B))
        ),
    }


def gaps(
    batch: Batch, writer_BT: Tensor, start_BT: Tensor, end_BT: Tensor, lag_B: Tensor
) -> Metrics:
    """The distance from behaviour to policy, split by cause on a round's probe rows.

    mismatch: the generator's log-probs against the trainer's, same weights (writer_BT).
    staleness: the weights that wrote against those at the round's start (start_BT).
    drift: the weights at the round's start against those at its end (end_BT).
    Each has k1 and k3 per token and its largest ratio, overall and by lag in updates (lag_B).
    """
    mask_BT = batch.mask_BT
    chain = {
        "mismatch": (batch.behavior_logp_BT, writer_BT),
        "staleness": (writer_BT, start_BT),
        "drift": (start_BT, end_BT),
    }
    metrics: Metrics = {}
    for name, (old_BT, new_BT) in chain.items():
        log_ratio_BT = (new_BT - old_BT) * mask_BT
        terms = {"k1": -log_ratio_BT, "k3": k3_terms(log_ratio_BT)}
        for estimator, term_BT in terms.items():
            sum_B = (term_BT * mask_BT).sum(dim=1)
            metric = f"gap/{name}_{estimator}"
            metrics[metric] = float(sum_B.sum() / mask_BT.sum())
            metrics[f"by_lag/{metric}"] = {
                str(lag): float(sum_B[lag_B == lag].sum() / mask_BT[lag_B == lag].sum())
                for lag in sorted(set(lag_B.tolist()))
            }
        metrics[f"gap/{name}_ratio_max"] = float(ratio_of(log_ratio_BT).max())
    return metrics
