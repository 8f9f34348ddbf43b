"""How far a policy is from SFT: KL per sequence, and perplexity of what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.algos.off_policy import k3_terms
from rlhf_lab.models.batching import to_device
from rlhf_lab.models.devices import device_of
from rlhf_lab.models.forward import response_logps
from rlhf_lab.models.microbatches import micro_batches
from rlhf_lab.types.data import Batch, Metrics

# Rows read at once: as many as fill a GPU. On a CPU the activations of more rows leave its caches,
# and a row takes half as long again.
ROWS = {"cpu": 32, "cuda": 128}


def distance_metrics(
    policy: Any | None, reference: Any, drawn: Batch, judged: Batch, temperature: float
) -> Metrics:
    """KL on samples drawn at the temperature of all log-probs; perplexity of the judged ones under
    SFT at temperature 1. Where both are one batch, the reference reads it once.

    policy: None where the log-probs that the samples carry are its own, so that it need not read
    them again.
    """
    is_same = drawn is judged
    away_B, ratio_B, plain_B = log_ratios(policy, reference, drawn, temperature, is_same)
    nll_B = -(plain_B if is_same else log_likelihood(reference, judged))
    length_B = judged.mask_BT.sum(dim=1)
    # The paper's published axis divides by prompt and response tokens; it is kept beside the true
    # one for comparison.
    read_B = length_B + judged.prompt_mask_BS.sum(dim=1)
    return {
        "kl/sft_k1": float(away_B.mean()),
        "kl/sft_k3": float(ratio_B.mean()),
        "ppl/sft_response": float((nll_B.sum() / length_B.sum()).exp()),
        "ppl/sft_paper": float((nll_B / read_B).exp().mean()),
    }


def log_ratios(
    policy: Any | None, reference: Any, batch: Batch, temperature: float, has_plain: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Per sequence: sum of log ratios (k1), and of per-token k3 (never negative); with has_plain
    also the reference's log-likelihood at temperature 1. policy: see `distance_metrics`."""
    k1, k3, plain = [], [], []
    wanted = [temperature, 1.0] if has_plain else [temperature]
    for part in micro_batches(batch, rows_for(reference)):
        policy_BT = part.behavior_logp_BT
        if policy is not None:
            (policy_BT,) = response_logp(policy, part, [temperature])
        reference_BT, *plain_BT = response_logp(reference, part, wanted)
        away_BT = policy_BT - reference_BT
        k1.append(away_BT.sum(dim=1))
        k3.append(k3_terms(-away_BT).sum(dim=1))
        plain += [logp_BT.sum(dim=1) for logp_BT in plain_BT]
    return torch.cat(k1), torch.cat(k3), torch.cat(plain) if plain else torch.zeros(0)


def log_likelihood(reference: Any, batch: Batch) -> Tensor:
    """Per sequence, at temperature 1."""
    parts = micro_batches(batch, rows_for(reference))
    return torch.cat([response_logp(reference, part, [1.0])[0].sum(dim=1) for part in parts])


def rows_for(model: Any) -> int:
    """Rows that the model's device reads at once."""
    return ROWS[device_of(model).type]


def response_logp(model: Any, part: Batch, temperatures: Sequence[float]) -> list[Tensor]:
    """Log-probs of the response tokens at each temperature, BT, from wherever the model is."""
    found = response_logps(model, to_device(part, device_of(model)), temperatures)
    return [logp_BT.cpu() for logp_BT in found]
