"""How far a decode loop's logits are from those of the model in whole rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rlhf_lab.models.numerical_check import reach

if TYPE_CHECKING:
    from rlhf_lab.rollout.generators.decoders import Decoder

# How far log-probs may be from the model's own, as a share of the largest logit.
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
TOLERANCE_OF_HALVES = 5e-2
# Tokens that each row writes; after the first, one row of each prompt goes on alone.
WRITTEN = (1, 2, 1)
LEAST = 7


def distance(model: Any, decoder: Decoder) -> float:
    """Largest difference of the decoder's logits to the model's own, as a share of what is
    tolerated: above one, the decoder does not compute what the model does. A prompt is longer than
    every border of the config, as far as a self-test can afford it."""
    size, device = model.config.vocab_size, model.device
    longest = max(LEAST, reach(model.config, len(WRITTEN)))
    rows = [[(7 * n + length) % size for n in range(length)] for length in (longest, 3)]
    with torch.inference_mode():
        found = [decoder.begin(rows, 2, len(WRITTEN))[::2]]
        found.append(decoder.step(torch.full((4,), WRITTEN[0], device=device))[::2])
        decoder.keep(torch.tensor([0, 2], device=device))
        for token in WRITTEN[1:]:
            found.append(decoder.step(torch.full((2,), token, device=device)))
        far, largest = 0.0, 1.0
        for row, tokens in enumerate(rows):
            text = torch.tensor([[*tokens, *WRITTEN]], device=device)
            true_TV = model(input_ids=text, use_cache=False).logits[0, len(tokens) - 1 :].float()
            for step, logits_BV in enumerate(found):
                far = max(far, float((logits_BV[row].float() - true_TV[step]).abs().max()))
            largest = max(largest, float(true_TV.abs().max()))
    return far / largest / TOLERANCE.get(model.dtype, TOLERANCE_OF_HALVES)
