"""How far a lean loop's logits are from those of the model that it takes apart."""

from __future__ import annotations

from typing import Any

import torch

from rlhf_lab.rollout.generators.lean import LeanDecoder
from rlhf_lab.rollout.generators.static import StaticDecoder

# How far log-probs may be from the model's own, as a share of the largest logit.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
TOLERANCE_OF_HALVES = 5e-2


def distance(model: Any, decoder: LeanDecoder | StaticDecoder) -> float:
    """Largest difference of the decoder's logits to the model's own, as a share of what is
    tolerated: above one, the decoder does not compute what the model does."""
    size = model.config.vocab_size
    rows = [[(7 * n + length) % size for n in range(length)] for length in (7, 3)]
    with torch.inference_mode():
        found = [decoder.begin(rows, 2, 3)[::2]]
        for token in (1, 2):
            found.append(decoder.step(torch.full((4,), token, device=model.device))[::2])
        far, largest = 0.0, 1.0
        for row, tokens in enumerate(rows):
            text = torch.tensor([[*tokens, 1, 2]], device=model.device)
            true_TV = model(input_ids=text, use_cache=False).logits[0, len(tokens) - 1 :].float()
            for step, logits_BV in enumerate(found):
                far = max(far, float((logits_BV[row].float() - true_TV[step]).abs().max()))
            largest = max(largest, float(true_TV.abs().max()))
    return far / largest / TOLERANCE.get(model.dtype, TOLERANCE_OF_HALVES)
