"""What a language model says of given responses, and how it takes new weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.types import Batch, PolicyOutput, Weights


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run with `count` threads per operation. Bits are comparable only at equal counts."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_weights(model: Any, weights: Weights) -> None:
    """Copy a version's tensors into a model. Every parameter must be there, and nothing else.

    Tied parameters have one name among the parameters and more in the state, hence not `strict`.
    """
    names = {name for name, _ in model.named_parameters()}
    if names != set(weights.state):
        raise ValueError(
            f"weights of version {weights.version} are of another model: they differ in "
            f"{sorted(names ^ set(weights.state))[:3]}"
        )
    model.load_state_dict(weights.state, strict=False)


def weights_digest(weights: Weights) -> str:
    """SHA-256 over names and bytes: equal digests mean bit-identical weights."""
    digest = hashlib.sha256()
    for name in sorted(weights.state):
        digest.update(name.encode())
        flat = weights.state[name].detach().contiguous().view(-1).view(torch.uint8)
        digest.update(flat.numpy().data)
    return digest.hexdigest()


def positions(mask: Tensor) -> Tensor:
    """Position of each token among the real ones of its row; padding gets 0."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def inputs(batch: Batch) -> dict[str, Any]:
    """What a transformers model reads of a batch: prompts and responses as one row each."""
    mask = torch.cat([batch.prompt_mask_BS, batch.mask_BT.long()], dim=1)
    return {
        "input_ids": torch.cat([batch.prompt_BS, batch.response_BT], dim=1),
        "attention_mask": mask,
        "position_ids": positions(mask),
        "use_cache": False,
    }


def before_tokens(hidden: Tensor, batch: Batch) -> Tensor:
    """The states from which the response tokens are said, BTD of all hidden states."""
    return hidden[:, -batch.response_BT.shape[1] - 1 : -1]


def response_values(values: Any, batch: Batch) -> Tensor:
    """Values of the states before the response tokens by a network of its own, BT; pads are 0."""
    hidden = values.body(**inputs(batch)).last_hidden_state
    value_BT: Tensor = values(before_tokens(hidden, batch)) * batch.mask_BT
    return value_BT


def response_output(
    model: Any, batch: Batch, temperature: float, values: Any | None = None
) -> PolicyOutput:
    """Log-probs of the response tokens at a temperature, with entropy (detached), BT; pads are 0.

    values: a head that also reads the model's last hidden states.
    The model must be in eval mode: dropout would make the ratio of a fresh sample differ from one
    (arXiv:2403.17031, detail 7).
    """
    width = batch.response_BT.shape[1]
    asked = {"output_hidden_states": True} if values is not None else {}
    output = model(**inputs(batch), logits_to_keep=width + 1, **asked)
    logits_BTV = output.logits[:, :-1]
    logp_BTV = torch.log_softmax(logits_BTV.float() / temperature, dim=-1)
    logp_BT = logp_BTV.gather(2, batch.response_BT.unsqueeze(2)).squeeze(2) * batch.mask_BT
    with torch.no_grad():
        entropy_BT = -(logp_BTV.exp() * logp_BTV).sum(dim=2) * batch.mask_BT
    if values is None:
        return PolicyOutput(logp_BT, entropy_BT)
    value_BT = values(before_tokens(output.hidden_states[-1], batch)) * batch.mask_BT
    return PolicyOutput(logp_BT, entropy_BT, value_BT)
