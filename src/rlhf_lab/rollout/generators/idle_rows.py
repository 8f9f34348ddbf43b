"""Whether rows may be idle at decoding steps, in which they wait for their environments."""

from __future__ import annotations

from typing import Any

import torch

from rlhf_lab.models.borders import borders
from rlhf_lab.models.numerical_check import exact, tried
from rlhf_lab.rollout.generators.decoders import Decoder
from rlhf_lab.rollout.generators.lean_distance import TOLERANCE, TOLERANCE_OF_HALVES
from rlhf_lab.rollout.generators.plain import PlainDecoder
from rlhf_lab.types.errors import UserError

TEXTS = ([3, 1, 4, 1, 5, 9, 2], [6, 5, 3])
# Tokens of both rows, and which of them is idle: each writes 1 and 2.
STEPS = (((1, 1), (True, False)), ((1, 2), (False, True)), ((2, 2), (False, False)))


def require_idle_rows(model: Any, decoder: Decoder) -> None:
    """Raise UserError where idle steps of a row change what the model computes for it: where it
    finds places by columns of the cache, or forgets what lies too many columns behind."""
    is_plain = isinstance(decoder, PlainDecoder)

    def far() -> float:
        # In half precision rounding is as large as what a gap changes.
        own = exact(model) if is_plain else model
        return idle_distance(own, PlainDecoder(own) if is_plain else decoder)

    if (is_plain and borders(model.config)) or tried(far)[0] > 1:
        raise UserError(
            f"episodes.decode_ahead with {type(model).__name__}: its attention does not bear the "
            "gaps of rows that wait for their environments; pass episodes.decode_ahead=0"
        )


def idle_distance(model: Any, decoder: Decoder) -> float:
    """Largest difference of the logits behind idle steps to the model's own, as a share of what is
    tolerated."""
    size, device = model.config.vocab_size, model.device
    texts = [[token % size for token in text] for text in TEXTS]
    with torch.inference_mode():
        decoder.begin(texts, 1, 2, idle_steps=1)
        for tokens, idle in STEPS:
            found_BV = decoder.step(torch.tensor(tokens, device=device), idle).float()
        far, largest = 0.0, 1.0
        for text, found_V in zip(texts, found_BV, strict=True):
            whole = torch.tensor([[*text, 1, 2]], device=device)
            true_V = model(input_ids=whole, use_cache=False).logits[0, -1].float()
            far = max(far, float((found_V - true_V).abs().max()))
            largest = max(largest, float(true_V.abs().max()))
    return far / largest / TOLERANCE.get(model.dtype, TOLERANCE_OF_HALVES)
