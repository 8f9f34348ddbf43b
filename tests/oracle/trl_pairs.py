"""TRL's DPO and online DPO, called on given log-probs like the losses in trl_losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlhf_lab.types.data import Batch
from tests.oracle.trl_losses import alone, stub, trl


def sequence_model(logp_BT: Tensor, batch: Batch) -> Callable[..., SimpleNamespace]:
    """A model that finds these log-probs of prompt and response, less the first token.

    It is to say zero wherever nothing is learnt.
    """
    padded_BL = pad(logp_BT * batch.mask_BT, (batch.prompt_BS.shape[1] - 1, 0))
    nothing_BL = torch.zeros_like(padded_BL)
    return lambda **_: SimpleNamespace(
        log_probs=padded_BL, entropy=nothing_BL, mean_logits=nothing_BL, is_top1=nothing_BL > 1
    )


def dpo_loss(
    logp_BT: Tensor, batch: Batch, beta: float, loss_type: str, smoothing: float = 0.0
) -> Tensor:
    """DPOTrainer's loss; the first half of the rows is chosen, the second rejected."""
    trainer = stub(
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        beta=beta,
        f_divergence_type="reverse_kl",
        label_smoothing=smoothing,
        ld_alpha=None,
        loss_types=[loss_type],
        loss_weights=[1.0],
        precompute_ref_logps=False,
        ref_model=sequence_model(batch.reference_logp_BT, batch),
        use_weighting=False,
        _total_train_tokens=0,
        _tp_size=1,
    )
    trainer.model.is_gradient_checkpointing = False
    mask_BT = batch.mask_BT.long()
    inputs = {
        "input_ids": torch.cat([batch.prompt_BS, batch.response_BT], dim=1),
        "attention_mask": torch.cat([batch.prompt_mask_BS, mask_BT], dim=1),
        "completion_mask": torch.cat([torch.zeros_like(batch.prompt_mask_BS), mask_BT], dim=1),
    }
    model = sequence_model(logp_BT, batch)
    cls = trl("trainer.dpo_trainer").DPOTrainer
    loss: Tensor = cls._compute_loss(trainer, model, inputs, False)
    return loss


def online_dpo_step(
    logp_BT: Tensor, batch: Batch, reward_B: Tensor, beta: float, loss_type: str
) -> Tensor:
    """OnlineDPOTrainer's training step up to its gradient, rewards given; two samples a prompt.

    Its rows are the first samples of all prompts, then the second ones.
    """
    order_B = torch.arange(len(batch)).view(-1, 2).T.flatten()
    losses: list[Tensor] = []
    accelerator = alone()
    accelerator.backward = losses.append
    trainer = stub(
        args=SimpleNamespace(
            use_vllm=False,
            missing_eos_penalty=None,
            loss_type=loss_type,
            torch_empty_cache_steps=None,
            optim="adamw_torch",
            n_gpu=1,
            gradient_accumulation_steps=1,
        ),
        beta=beta,
        eos_token_ids=[1],
        ref_model="reference",
        reward_funcs=[None],
        stats=defaultdict(list),
        processing_class=SimpleNamespace(batch_decode=lambda *_, **__: [""] * len(batch)),
        _calculate_rewards_from_functions=lambda **_: reward_B[order_B],
        _generate=lambda *_: (
            batch.prompt_BS[order_B],
            batch.prompt_mask_BS[order_B],
            batch.response_BT[order_B],
            batch.mask_BT[order_B].long(),
            None,
        ),
        _forward=lambda model, *_: (batch.reference_logp_BT if model == "reference" else logp_BT)[
            order_B
        ],
    )
    trainer.accelerator = accelerator
    module = trl("experimental.online_dpo.online_dpo_trainer")
    model = SimpleNamespace(train=lambda: None)
    module.OnlineDPOTrainer.training_step(trainer, model, {"prompt": [""] * (len(batch) // 2)})
    return losses[0]
