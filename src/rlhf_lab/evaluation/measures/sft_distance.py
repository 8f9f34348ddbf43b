"""How far a policy is from SFT: KL per sequence, and perplexity of what it writes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlhf_lab.algos.off_policy import k3_terms
from rlhf_lab.models.batching import to_device
from rlhf_lab.models.devices import device_of
from rlhf_lab.models.forward import response_output
from rlhf_lab.models.microbatches import micro_batches
from rlhf_lab.types.data import Batch, Metrics

ROWS = 128


def distance_metrics(
    policy: Any, reference: Any, drawn: Batch, judged: Batch, temperature: float
) -> Metrics:
    """KL on samples drawn at the temperature of all log-probs; perplexity of the judged ones."""
    away_B, ratio_B = log_ratios(policy, reference, drawn, temperature)
    nll_B, length_B, read_B = perplexity(reference, judged)
    return {
        "kl/sft_k1": float(away_B.mean()),
        "kl/sft_k3": float(ratio_B.mean()),
        "ppl/sft_response": float((nll_B.sum() / length_B.sum()).exp()),
        "ppl/sft_paper": float((nll_B / read_B).exp().mean()),
    }


def log_ratios(
    policy: Any, reference: Any, batch: Batch, temperature: float
) -> tuple[Tensor, Tensor]:
    """Per sequence: sum of log ratios (k1), and sum of per-token k3 (never negative)."""
    k1, k3 = [], []
    for part in micro_batches(batch, ROWS):
        policy_BT = response_logp(policy, part, temperature)
        reference_BT = response_logp(reference, part, temperature)
        away_BT = policy_BT - reference_BT
        k1.append(away_BT.sum(dim=1))
        k3.append(k3_terms(-away_BT).sum(dim=1))
    return torch.cat(k1), torch.cat(k3)


def perplexity(reference: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Per sequence, under SFT at temperature 1: negative log-likelihood, response tokens, all.

    The paper's published axis divides by prompt and response tokens; it is kept beside the true one
    for comparison.
    """
    nll = [-response_logp(reference, part, 1.0).sum(dim=1) for part in micro_batches(batch, ROWS)]
    length_B = batch.mask_BT.sum(dim=1)
    return torch.cat(nll), length_B, length_B + batch.prompt_mask_BS.sum(dim=1)


def response_logp(model: Any, part: Batch, temperature: float) -> Tensor:
    """Log-probs of the response tokens, BT, from wherever the model is."""
    output = response_output(model, to_device(part, device_of(model)), temperature)
    return output.logp_BT.cpu()
