"""The choice of the decode loop: that of transformers, or a lean one, which is tested first."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from rlhf_lab.models.layer_stack import unknown_part
from rlhf_lab.models.numerical_check import tried
from rlhf_lab.rollout.generators.lean import LeanDecoder, lean_decoder
from rlhf_lab.rollout.generators.lean_distance import distance
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
