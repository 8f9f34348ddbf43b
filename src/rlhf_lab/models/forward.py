"""Forward passes over given responses: log-probs, entropy and values of every response token.

A row is a left-padded prompt (S tokens) and a right-padded response (T tokens). The log-prob of
response token t comes from the hidden state before it, so the first one comes from the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlhf_lab.models.heads import expected
from rlhf_lab.types.data import Batch, PolicyOutput, Writer

# Tokens whose log-probs are read, by number, or how many of the most likely ones (0: all).
TopChoice = Tensor | int


def top_columns(logp: Tensor, wanted: TopChoice) -> tuple[Tensor, Tensor]:
    """The tokens, and their log-probs, along the last dimension. logp: of the whole vocabulary,
    BTV or NV. Given tokens have its leading dimensions."""
    if isinstance(wanted, Tensor):
        tokens = wanted
    elif wanted:
        # The choice has no gradient.
        tokens = logp.detach().topk(wanted, dim=-1).indices
    else:
        tokens = torch.arange(logp.shape[-1], device=logp.device).expand_as(logp)
    return tokens, logp.gather(-1, tokens)


class TokenRows(NamedTuple):
    """The columns of a batch that models read. Rows of a group are consecutive and share a prompt.

    top: tokens, BTK, whose log-probs a pass also returns, or how many of the most likely ones.

    A tuple, because FSDP and DeepSpeed look for tensors in the arguments of a forward pass.
    """

    prompt_BS: Tensor
    prompt_mask_BS: Tensor
    response_BT: Tensor
    mask_BT: Tensor
    group_B: Tensor
    top: TopChoice | None = None


def token_rows(batch: Batch) -> TokenRows:
    """The columns of a batch that models read: all text, where an environment wrote some of it.
    What is found for its U columns, `of_policy` brings to the T columns of the response."""
    prompt_BS, mask_BS, group_B = batch.prompt_BS, batch.prompt_mask_BS, batch.group_B
    if not batch.has_environment:
        return TokenRows(prompt_BS, mask_BS, batch.response_BT, batch.mask_BT, group_B)
    is_text_BU = (batch.writer_BU > 0).to(batch.mask_BT.dtype)
    return TokenRows(prompt_BS, mask_BS, batch.text_BU, is_text_BU, group_B)


def of_policy(output: PolicyOutput, batch: Batch) -> PolicyOutput:
    """What a pass over `token_rows` found, at the tokens that the policy wrote alone."""
    if not batch.has_environment:
        return output
    columns = {name: value for name, value in vars(output).items() if value is not None}
    return replace(output, **{name: policy_columns(columns[name], batch) for name in columns})


def policy_columns(found: Tensor, batch: Batch) -> Tensor:
    """Numbers of all text, BU (or BUK), at the tokens that the policy wrote, BT (or BTK)."""
    if not batch.has_environment:
        return found
    return in_rows(found[batch.writer_BU == Writer.policy], batch.mask_BT)


def top_choice(batch: Batch | TokenRows) -> TopChoice | None:
    """The tokens of a pass besides those of the responses."""
    return batch.top if isinstance(batch, TokenRows) else None


class ValueColumns(NamedTuple):
    """Values before response tokens, and the logits of their bins if they have any; 0 on
    padding."""

    value_BT: Tensor
    logits_BTH: Tensor | None


def positions(mask: Tensor) -> Tensor:
    """Position of each token in its row, padding not counted; padding itself gets 0."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def inputs(batch: Batch | TokenRows) -> dict[str, Any]:
    """Arguments of a transformers model: prompt and response of each row as one sequence."""
    mask = torch.cat([batch.prompt_mask_BS, batch.mask_BT.long()], dim=1)
    return {
        "input_ids": torch.cat([batch.prompt_BS, batch.response_BT], dim=1),
        "attention_mask": mask,
        "position_ids": positions(mask),
        "use_cache": False,
    }


def before_tokens(hidden: Tensor, batch: Batch | TokenRows) -> Tensor:
    """The hidden states that predict the response tokens, BTD, among those of all tokens."""
    return hidden[:, -batch.response_BT.shape[1] - 1 : -1]


def response_values(values: Any, batch: Batch | TokenRows) -> ValueColumns:
    """Values of the states before the response tokens by a network with its own body."""
    hidden = values.body(**inputs(batch)).last_hidden_state
    return value_columns(values, before_tokens(hidden, batch), batch.mask_BT)


def value_columns(values: Any, hidden: Tensor, mask_BT: Tensor) -> ValueColumns:
    """Values and logits from the hidden states before the response tokens, BTD or those of the N
    real tokens alone, ND."""
    score, bins = values(hidden), values.bins
    value = score if bins is None else expected(score, bins)
    if hidden.dim() == 2:
        value_BT = in_rows(value, mask_BT)
        return ValueColumns(value_BT, None if bins is None else in_rows(score, mask_BT))
    return ValueColumns(value * mask_BT, None if bins is None else score * mask_BT.unsqueeze(2))


def with_values(output: PolicyOutput, values: Any, hidden: Tensor, mask_BT: Tensor) -> PolicyOutput:
    """The output with what `value_columns` finds."""
    value_BT, logits_BTH = value_columns(values, hidden, mask_BT)
    return replace(output, value_BT=value_BT, value_logits_BTH=logits_BTH)


def response_output(
    model: Any,
    batch: Batch | TokenRows,
    temperature: float,
    values: Any | None = None,
    num_chunks: int = 1,
) -> PolicyOutput:
    """Log-probs of the response tokens at a temperature, and entropy (detached), BT; 0 on padding.

    values: a value head on the model's last hidden states. num_chunks: above 1, logits are computed
    chunk by chunk, and again in the backward pass, so that one chunk is in memory at a time. The
    model must be in eval mode: dropout would make the ratio of a fresh sample differ from one
    (arXiv:2403.17031, detail 7).
    """
    if num_chunks > 1:
        return chunked_output(model, batch, temperature, values, num_chunks)
    width = batch.response_BT.shape[1]
    extra = {"output_hidden_states": True} if values is not None else {}
    output = model(**inputs(batch), logits_to_keep=width + 1, **extra)
    logits_BTV = output.logits[:, :-1]
    logp_BTV = torch.log_softmax(logits_BTV.float() / temperature, dim=-1)
    logp_BT = logp_BTV.gather(2, batch.response_BT.unsqueeze(2)).squeeze(2) * batch.mask_BT
    with torch.no_grad():
        entropy_BT = -(logp_BTV.exp() * logp_BTV).sum(dim=2) * batch.mask_BT
    found = PolicyOutput(logp_BT, entropy_BT)
    if (wanted := top_choice(batch)) is not None:
        top_BTK, top_logp_BTK = top_columns(logp_BTV, wanted)
        top_logp_BTK = top_logp_BTK * batch.mask_BT.unsqueeze(2)
        found = replace(found, top_BTK=top_BTK, top_logp_BTK=top_logp_BTK)
    if values is None:
        return found
    hidden = before_tokens(output.hidden_states[-1], batch)
    return with_values(found, values, hidden, batch.mask_BT)


def chunked_output(
    model: Any, batch: Batch | TokenRows, temperature: float, values: Any | None, num_chunks: int
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
    batch: Batch | TokenRows,
    hidden_ND: Tensor,
    temperature: float,
    values: Any | None,
    num_chunks: int,
) -> PolicyOutput:
    """`response_output` from the hidden states before the N response tokens, row after row."""
    head = model.get_output_embeddings()
    hidden = hidden_ND.tensor_split(num_chunks)
    tokens = batch.response_BT[batch.mask_BT > 0].tensor_split(num_chunks)
    wanted = top_choice(batch)
    if isinstance(wanted, Tensor):
        tops: Sequence[TopChoice | None] = wanted[batch.mask_BT > 0].tensor_split(num_chunks)
    else:
        tops = [wanted] * num_chunks
    parts = zip(hidden, tokens, tops, strict=True)
    if num_chunks == 1:
        columns = [token_logp(head, *part, temperature) for part in parts]
    else:
        columns = [
            checkpoint(
                token_logp, head, *part, temperature, use_reentrant=False, preserve_rng_state=False
            )
            for part in parts
        ]
    logp_BT, entropy_BT, *top = (
        in_rows(torch.cat(column), batch.mask_BT) for column in zip(*columns, strict=True)
    )
    found = PolicyOutput(logp_BT, entropy_BT, None, None, *top)
    return found if values is None else with_values(found, values, hidden_ND, batch.mask_BT)


def in_rows(values: Tensor, mask_BT: Tensor) -> Tensor:
    """One number per real token, N, put into rows, BT, or H numbers, NH, BTH; 0 on padding."""
    if values.dim() == 1:
        return torch.zeros_like(mask_BT).masked_scatter(mask_BT > 0, values)
    mask = mask_BT.unsqueeze(2).expand(*mask_BT.shape, values.shape[1])
    return torch.zeros_like(mask, dtype=values.dtype).masked_scatter(mask > 0, values)


def token_logp(
    head: Any, hidden_ND: Tensor, token_N: Tensor, top: TopChoice | None, temperature: float
) -> tuple[Tensor, ...]:
    """Log-prob of each token given the hidden state before it, and the entropy there, N each; of
    the other tokens of `top`, if there are, which they are and their log-probs, NK each."""
    logp_NV = torch.log_softmax(head(hidden_ND).float() / temperature, dim=-1)
    with torch.no_grad():
        entropy_N = -(logp_NV.exp() * logp_NV).sum(dim=1)
    others = () if top is None else top_columns(logp_NV, top)
    return logp_NV.gather(1, token_N.unsqueeze(1)).squeeze(1), entropy_N, *others


def body(model: Any) -> Any:
    """The model without its output head."""
    return model.base_model


def num_chunks(num_tokens: int, logit_tokens: int) -> int:
    """Chunks of at most `logit_tokens` response tokens; 0 puts all of them into one."""
    return max(1, math.ceil(num_tokens / logit_tokens)) if logit_tokens else 1
