"""Supervised fine-tuning on reference answers: the policy that RL starts from and is tied to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rlhf_lab.models.batching import collate, to_device
from rlhf_lab.models.devices import device_of, torch_threads
from rlhf_lab.models.forward import response_output
from rlhf_lab.tasks.references import reference_groups
from rlhf_lab.training.stages.sft_options import LossOn, SFTOptions
from rlhf_lab.training.stages.supervised import Bar, fit
from rlhf_lab.types.data import Batch
from rlhf_lab.types.samples import Prompt


def train_sft(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    held_out: Sequence[Prompt],
    max_response_tokens: int,
    options: SFTOptions,
    bar: Bar,
) -> dict[str, float]:
    """Fit the model in place. prompts: an endless stream, `prompts[i]` exists for every i."""
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    device = device_of(model)

    def batch_of(chosen: Sequence[Prompt]) -> Batch:
        batch = collate(reference_groups(chosen, tokenizer, max_response_tokens), pad)
        return to_device(batch, device)

    def loss_of_step(step: int) -> Tensor:
        chosen = [prompts[step * options.batch + row] for row in range(options.batch)]
        return token_loss(model, batch_of(chosen), options.loss_on)

    losses = fit(model, loss_of_step, options.steps, options.lr, options.threads, bar)
    with torch_threads(options.threads), torch.inference_mode():
        validation = float(token_loss(model, batch_of(held_out), LossOn.response))
    tail = losses[-20:]
    return {"train_loss": sum(tail) / len(tail), "validation_loss": validation}


def token_loss(model: Any, batch: Batch, loss_on: LossOn) -> Tensor:
    """Mean negative log-likelihood a token, in nats."""
    if loss_on is LossOn.all:
        batch = whole_sequence(batch)
    logp_BT = response_output(model, batch, temperature=1.0).logp_BT
    return -logp_BT.sum() / batch.mask_BT.sum()


def whole_sequence(batch: Batch) -> Batch:
    """The same rows with all but the first prompt column counted as response. What is known of
    response tokens alone is 0 for the tokens of the prompt."""
    prompt_BS, mask_BS = batch.prompt_BS, batch.prompt_mask_BS
    num_moved = prompt_BS.shape[1] - 1
    names = [field.name for field in fields(batch) if field.name.endswith("_BT")]
    padded = {name: functional.pad(getattr(batch, name), (num_moved, 0)) for name in names}
    padded["response_BT"] = torch.cat([prompt_BS[:, 1:], batch.response_BT], dim=1)
    padded["mask_BT"] = torch.cat([mask_BS[:, 1:].to(batch.mask_BT.dtype), batch.mask_BT], dim=1)
    return replace(batch, prompt_BS=prompt_BS[:, :1], prompt_mask_BS=mask_BS[:, :1], **padded)
