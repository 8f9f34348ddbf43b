"""How far a policy is from SFT: KL per sequence, and perplexity of what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.algos.off_policy import k3_terms
from rlhf_lab.models.batching import to_device
from rlhf_lab.models.devices import device_of
from rlhf_lab.models.last_token_forward import last_column_stack, response_logps
from rlhf_lab.models.microbatches import split
from rlhf_lab.types.data import Batch, Metrics

# Rows read at once: as many as fill a GPU. On a CPU the activations of more rows leave its caches,
# and a row takes half as long again.
ROWS = {"cpu": 32, "cuda": 128}
# Logits of one pass on a GPU at most: 4 GiB in float32, and as much for their log-softmax.
LOGITS = 2**30


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
    read_policy = None if policy is None else reader_of(policy)
    read_reference = reader_of(reference)
    length = 3 if has_plain else 2
    found_BN = torch.zeros(len(batch), length)
    for part, index_B in parts_of(batch, reference):
        policy_BT = part.behavior_logp_BT
        if read_policy is not None:
            (policy_BT,) = read_policy(part, [temperature])
        reference_BT, *plain_BT = read_reference(part, [temperature, 1.0][: length - 1])
        away_BT = policy_BT - reference_BT
        columns = [away_BT, k3_terms(-away_BT), *plain_BT]
        found_BN[index_B] = torch.stack([column_BT.sum(dim=1) for column_BT in columns], dim=1)
    away_B, ratio_B, *plain = found_BN.unbind(dim=1)
    return away_B, ratio_B, plain[0] if plain else torch.zeros(0)


def log_likelihood(reference: Any, batch: Batch) -> Tensor:
    """Per sequence, at temperature 1."""
    read = reader_of(reference)
    found_B = torch.zeros(len(batch))
    for part, index_B in parts_of(batch, reference):
        found_B[index_B] = read(part, [1.0])[0].sum(dim=1)
    return found_B


def parts_of(batch: Batch, model: Any) -> Iterator[tuple[Batch, Tensor]]:
    """Rows of like length together, as many as the model's device reads at once and, on a GPU, has
    room for the logits of, and their numbers in the batch."""
    device_type = device_of(model).type
    rows = ROWS[device_type]
    tokens = rows * (batch.prompt_BS.shape[1] + batch.read_width)
    if device_type != "cpu":
        tokens = min(tokens, LOGITS // model.config.get_text_config().vocab_size)
    for part in split(batch, rows, tokens):
        yield part.batch, part.index_B


def reader_of(model: Any) -> Callable[[Batch, Sequence[float]], list[Tensor]]:
    """What gives log-probs of the response tokens at each temperature, BT, on the host, from
    wherever the model is."""
    stack, device = last_column_stack(model), device_of(model)

    def read(part: Batch, temperatures: Sequence[float]) -> list[Tensor]:
        found = response_logps(model, stack, to_device(part, device), temperatures)
        return [logp_BT.cpu() for logp_BT in found]

    return read
