"""The choice of the decode loop: that of transformers, or a lean one, which is tested first."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from rlhf_lab.models.borders import borders
from rlhf_lab.models.layer_stack import unknown_part
from rlhf_lab.models.numerical_check import exact, reach, tried
from rlhf_lab.rollout.generators.lean import LeanDecoder, lean_decoder
from rlhf_lab.rollout.generators.options import Decode
from rlhf_lab.rollout.generators.plain import PlainDecoder, RereadingDecoder
from rlhf_lab.rollout.generators.static import StaticDecoder, static_decoder
from rlhf_lab.types.errors import UserError

# In half precision, an expert that rounding chooses moves logits farther than other rounding does;
# a cache that is wrong moves them farther still.
ROUNDING_OF_EXPERTS = 4


class Decoder(Protocol):
    """Reads prompts and writes tokens to all rows at once; `keep` lets the other rows go.

    room: tokens of a row at most. idle_steps: steps at most in which it is idle. idle: for each row
    whether its token is not written yet, and comes again at the next step; () where all are
    written. No later token reads what an idle step wrote.
    """

    def begin(
        self, prompts: Sequence[Sequence[int]], repeats: int, room: int, idle_steps: int = 0
    ) -> Tensor: ...

    def step(self, token_B: Tensor, idle: Sequence[bool] = ()) -> Tensor: ...

    def keep(self, rows: Tensor) -> None: ...


def decoder_of(model: Any, decode: Decode) -> tuple[Decoder, str]:
    """The decoder of an option, and in a line which loop it is, and why not a faster one.

    A lean one is compared with the model before it is trusted.
    """
    chosen = f"generator.decode={decode.value}"
    if decode is Decode.transformers:
        decoder, note = own_decoder(model)
        return decoder, f"{chosen}: {note}"
    loop = faster_loop(model, decode).value
    found, problem = faster_decoder(model, loop)
    if found is not None:
        return found, f"{chosen}: the {loop} loop decodes"
    if decode is not Decode.auto:
        raise UserError(f"{chosen}: {problem}; pass generator.decode=auto")
    decoder, note = own_decoder(model)
    return decoder, f"{chosen}: {note}. That is slower than the {loop} loop: {problem}"


def faster_loop(model: Any, decode: Decode) -> Decode:
    """The loop over the model's modules that an option asks for. auto: a GPU waits for single
    commands, and takes whole steps as graphs; a CPU reads no more of a cache than it must."""
    if decode is Decode.auto:
        return Decode.static if model.device.type == "cuda" else Decode.lean
    return decode


def faster_decoder(model: Any, loop: str) -> tuple[LeanDecoder | StaticDecoder | None, str]:
    """The lean or static decoder, or None and why it is not taken for a model."""
    decoder = static_decoder(model) if loop == Decode.static else lean_decoder(model)
    if decoder is None:
        return None, f"it does not know {unknown_part(model)}"
    far, reason = tried(functools.partial(distance, model, decoder))
    if far <= 1:
        return decoder, ""
    return None, f"it is not taken for {type(model).__name__}, because {reason or times(far)}"


def own_decoder(model: Any) -> tuple[PlainDecoder | RereadingDecoder, str]:
    """The decoder over a model's own cache, or one without where that finds other logits than the
    model in whole rows, and which of them it is."""
    decoder = PlainDecoder(model)
    far, reason = tried(functools.partial(distance, model, decoder))
    if far <= (1 if model.dtype is torch.float32 else ROUNDING_OF_EXPERTS):
        return decoder, "the loop of transformers decodes"
    note = (
        f"rows are read anew for each token, which is slow, because the cache of "
        f"{type(model).__name__} is not taken: {reason or times(far)}"
    )
    return RereadingDecoder(model), note


def times(far: float) -> str:
    """How far logits are off."""
    return f"its logits are {far:.3g} times as far from the model's own as is tolerated"


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
