"""What a language model says of given responses, and how it takes new weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlhf_lab.types.data import Batch, PolicyOutput, Weights

# Where the configs of transformers say that logits are capped.
CAPS = ("final_logit_softcapping", "output_logits_soft_cap")


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


class Texts(NamedTuple):
    """The part of a batch that models read. A tuple, so that what wraps models finds the tensors.

    Prompts are left-padded, responses right-padded. Rows of one group, which are consecutive, have
    one prompt.
    """

    prompt_BS: Tensor
    prompt_mask_BS: Tensor
    response_BT: Tensor
    mask_BT: Tensor
    group_B: Tensor


def texts(batch: Batch) -> Texts:
    """What models read of a batch."""
    return Texts(
        batch.prompt_BS, batch.prompt_mask_BS, batch.response_BT, batch.mask_BT, batch.group_B
    )


def positions(mask: Tensor) -> Tensor:
    """Position of each token among the real ones of its row; padding gets 0."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def inputs(batch: Batch | Texts) -> dict[str, Any]:
    """What a transformers model reads of a batch: prompts and responses as one row each."""
    mask = torch.cat([batch.prompt_mask_BS, batch.mask_BT.long()], dim=1)
    return {
        "input_ids": torch.cat([batch.prompt_BS, batch.response_BT], dim=1),
        "attention_mask": mask,
        "position_ids": positions(mask),
        "use_cache": False,
    }


def before_tokens(hidden: Tensor, batch: Batch | Texts) -> Tensor:
    """The states from which the response tokens are said, BTD of all hidden states."""
    return hidden[:, -batch.response_BT.shape[1] - 1 : -1]


def response_values(values: Any, batch: Batch | Texts) -> Tensor:
    """Values of the states before the response tokens by a network of its own, BT; pads are 0."""
    hidden = values.body(**inputs(batch)).last_hidden_state
    value_BT: Tensor = values(before_tokens(hidden, batch)) * batch.mask_BT
    return value_BT


def response_output(
    model: Any,
    batch: Batch | Texts,
    temperature: float,
    values: Any | None = None,
    num_chunks: int = 1,
) -> PolicyOutput:
    """Log-probs of the response tokens at a temperature, with entropy (detached), BT; pads are 0.

    values: a head that also reads the model's last hidden states. num_chunks: parts in which the
    logits are made (and made again in the backward pass), so that only one part is ever in memory;
    1 makes all of them at once.
    The model must be in eval mode: dropout would make the ratio of a fresh sample differ from one
    (arXiv:2403.17031, detail 7).
    """
    if num_chunks > 1:
        return chunked_output(model, batch, temperature, values, num_chunks)
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


def chunked_output(
    model: Any, batch: Batch | Texts, temperature: float, values: Any | None, num_chunks: int
) -> PolicyOutput:
    """`response_output` with the logits of one chunk of response tokens in memory at a time.

    The model must be one that `is_splittable`. A chunk's logits are recomputed in the backward pass
    (arXiv:2411.09009 measures what they cost otherwise).
    """
    hidden_BTD = before_tokens(body(model)(**inputs(batch)).last_hidden_state, batch)
    return states_output(
        model, batch, hidden_BTD[batch.mask_BT > 0], temperature, values, num_chunks
    )


def states_output(
    model: Any,
    batch: Batch | Texts,
    hidden_ND: Tensor,
    temperature: float,
    values: Any | None,
    num_chunks: int,
) -> PolicyOutput:
    """What a model says in its last hidden states before the N response tokens, row by row."""
    head = model.get_output_embeddings()
    hidden = hidden_ND.tensor_split(num_chunks)
    tokens = batch.response_BT[batch.mask_BT > 0].tensor_split(num_chunks)
    parts = zip(hidden, tokens, strict=True)
    if num_chunks == 1:
        found = [token_logp(head, *part, temperature) for part in parts]
    else:
        found = [
            checkpoint(
                token_logp, head, *part, temperature, use_reentrant=False, preserve_rng_state=False
            )
            for part in parts
        ]
    logp_BT, entropy_BT = (
        in_rows(torch.cat(column), batch.mask_BT) for column in zip(*found, strict=True)
    )
    value_BT = None if values is None else in_rows(values(hidden_ND), batch.mask_BT)
    return PolicyOutput(logp_BT, entropy_BT, value_BT)


def in_rows(found_N: Tensor, mask_BT: Tensor) -> Tensor:
    """Numbers of the real tokens in their places, BT; zeros elsewhere."""
    return torch.zeros_like(mask_BT).masked_scatter(mask_BT > 0, found_N)


def token_logp(
    head: Any, hidden_ND: Tensor, token_N: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-prob of each token after its hidden state, and the entropy (detached) there, N each."""
    logp_NV = torch.log_softmax(head(hidden_ND).float() / temperature, dim=-1)
    with torch.no_grad():
        entropy_N = -(logp_NV.exp() * logp_NV).sum(dim=1)
    return logp_NV.gather(1, token_N.unsqueeze(1)).squeeze(1), entropy_N


def body(model: Any) -> Any:
    """The model without its output head."""
    return model.base_model


def is_splittable(model: Any) -> bool:
    """Whether the logits are the output head's word on the last hidden states and nothing more.

    Asked of the model itself, on two tokens: some scale or cap their logits, each by another name.
    Those that cap them hardly change small ones, so the known names are looked for as well.
    """
    if any(getattr(model.config, name, None) for name in CAPS):
        return False
    head = model.get_output_embeddings()
    if head is None or not hasattr(model, "base_model") or model.base_model is model:
        return False
    tokens = torch.arange(2, device=next(model.parameters()).device).unsqueeze(0)
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits
        parts = head(body(model)(input_ids=tokens, use_cache=False).last_hidden_state)
    return logits.shape == parts.shape and torch.allclose(logits, parts, rtol=1e-4, atol=1e-5)


def attends_to_all(config: Any) -> bool:
    """Whether every layer attends to all that came before, by what a model's config says."""
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return set(kinds) == {"full_attention"}
    return getattr(config, "sliding_window", None) is None


def num_chunks(num_tokens: int, logit_tokens: int) -> int:
    """Chunks of at most `logit_tokens` response tokens; 0 puts all of them into one."""
    return max(1, math.ceil(num_tokens / logit_tokens)) if logit_tokens else 1
