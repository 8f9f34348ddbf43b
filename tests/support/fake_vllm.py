"""An engine in the place of vLLM's, as far as the run's side of it is tested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlhf_lab.models.weights import load_weights
from rlhf_lab.rollout.generators.vllm.requests import Answer, Drawing, Request
from rlhf_lab.types.data import Weights
from rlhf_lab.types.heartbeat import nothing


def has_end(tokens: Sequence[int], drawing: Drawing) -> bool:
    """Whether an end token is among the tokens."""
    return not set(drawing.ends).isdisjoint(tokens)


class Mirror:
    """A backend that is transformers itself. lost: the tensor that never arrives. keeps: whether
    only the first load does anything. says: the version it speaks of, if not the last."""

    num_engines = 1

    def __init__(self, model: Any, lost: str = "", keeps: bool = False) -> None:
        self.model = model
        self.lost = lost
        self.keeps = keeps
        self.says = ""
        self.loaded: list[str] = []
        self.asked: list[list[Request]] = []
        self.is_closed = False
        self.begun: list[list[Answer]] = []

    def load(self, weights: Weights, name: str) -> None:
        own = dict(self.model.named_parameters())
        state = {
            k: own[k].detach().clone() if k == self.lost else v for k, v in weights.state.items()
        }
        if not (self.keeps and self.loaded):
            load_weights(self.model, Weights(weights.version, state))
        self.loaded.append(name)

    def draw(self, requests: Sequence[Request], drawing: Drawing) -> list[Answer]:
        self.asked.append(list(requests))
        return [self.answer(request, drawing) for request in requests]

    def answer(self, request: Request, drawing: Drawing) -> Answer:
        rng = torch.Generator().manual_seed(request.seed)
        tokens: list[int] = []
        logps: list[float] = []
        while len(tokens) < drawing.max_new_tokens and not has_end(tokens, drawing):
            row = torch.tensor([[*request.tokens, *tokens]])
            with torch.inference_mode():
                logits_V = self.model(input_ids=row).logits[0, -1].float() / drawing.temperature
            logp_V = logits_V.log_softmax(-1)
            drawn = (
                logp_V.argmax() if request.is_greedy else logp_V.exp().multinomial(1, generator=rng)
            )
            tokens.append(int(drawn))
            logps.append(float(logp_V[tokens[-1]]))
        version = self.says or self.loaded[-1]
        names = (version,) * len(tokens)
        return Answer(tuple(tokens), tuple(logps), has_end(tokens, drawing), names)

    def begin(self, requests: Sequence[Request], drawing: Drawing) -> int:
        self.begun.append(self.draw(requests, drawing))
        return len(self.begun) - 1

    def finish_some(
        self, numbers: Sequence[int], look: Callable[[], None] = nothing
    ) -> dict[int, list[Answer]]:
        """The newest batch alone: answers come in another order than they were asked for."""
        look()
        return {max(numbers): self.begun[max(numbers)]}

    def finish(self, number: int, look: Callable[[], None] = nothing) -> list[Answer]:
        return self.begun[number]

    def close(self) -> None:
        self.is_closed = True
