"""The choice of the decode loop: that of transformers, or a lean one, which is tested first."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from rlhf_lab.models.agreement import tried
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
    """The decoder of an option, and a note for the user ('' if none).

    A lean one is compared with the model before it is trusted.
    """
    if decode is Decode.transformers:
        return own_decoder(model)
    decoder = known_decoder(model, decode)
    if decoder is None:
        if decode is Decode.auto:
            return own_decoder(model)
        raise UserError(
            f"generator.decode={decode.value}: the lean loop does not know {type(model).__name__} "
            "with this kind of attention; pass generator.decode=auto"
        )
    far, reason = tried(functools.partial(distance, model, decoder))
    if far <= 1:
        return decoder, ""
    problem = (
        f"generator.decode={decode.value}: the lean loop is not taken for {type(model).__name__}: "
        f"{reason or times(far)}"
    )
    if decode is not Decode.auto:
        raise UserError(f"{problem}; pass generator.decode=transformers")
    own, note = own_decoder(model)
    return own, f"{problem}; {note or 'transformers decodes instead'}"


def own_decoder(model: Any) -> tuple[PlainDecoder | RereadingDecoder, str]:
    """The decoder over a model's own cache, or one without where that finds other logits than the
    model in whole rows, and a note."""
    decoder = PlainDecoder(model)
    far, reason = tried(functools.partial(distance, model, decoder))
    if far <= (1 if model.dtype is torch.float32 else ROUNDING_OF_EXPERTS):
        return decoder, ""
    note = (
        f"the cache of {type(model).__name__} is not taken: {reason or times(far)}; rows are read "
        "anew for each token, which is slow"
    )
    return RereadingDecoder(model), note


def times(far: float) -> str:
    """How far logits are off."""
    return f"its logits are {far:.3g} times as far from the model's own as is tolerated"


def known_decoder(model: Any, decode: Decode) -> LeanDecoder | StaticDecoder | None:
    """The lean or static decoder, None for a model that they do not know. auto: a GPU waits for
    single commands, and takes whole steps as graphs; a CPU reads no more of a cache than it must.
    """
    is_static = decode is Decode.static or (decode is Decode.auto and model.device.type == "cuda")
    return static_decoder(model) if is_static else lean_decoder(model)
