"""TRL's GRPO and RLOO, called on given log-probs: its trainers' methods without their trainers.

Each method is run unbound on a namespace with the few attributes that it reads, where the forward
pass is replaced by one that returns the given tensors.
"""

from __future__ import annotations

import os
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.types.data import Batch
from tests.oracle.batches import LIMIT, advantages


def trl(module: str, version: str = "1.16.0") -> Any:
    """A module of TRL, or a visible skip. version: one that has it."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    why = f"trl.{module} of TRL {version} is not here; `make test-oracle` brings it"
    return pytest.importorskip(f"trl.{module}", reason=why)


def alone() -> SimpleNamespace:
    """An accelerator of one process."""
    return SimpleNamespace(
        device=torch.device("cpu"),
        num_processes=1,
        process_index=0,
        gather=lambda value: value,
        gather_for_metrics=lambda value: value,
        reduce=lambda value, reduction: value,
        backward=lambda loss: None,
    )


def stub(**attributes: Any) -> SimpleNamespace:
    """What every trainer has."""
    return SimpleNamespace(
        accelerator=alone(),
        model=SimpleNamespace(training=True),
        aux_loss_enabled=False,
        _metrics={"train": defaultdict(list)},
        **attributes,
    )


def rollout(batch: Batch) -> dict[str, Tensor]:
    """The part of a trainer's inputs that GRPO and RLOO share."""
    return {
        "prompt_ids": batch.prompt_BS,
        "prompt_mask": batch.prompt_mask_BS,
        "completion_ids": batch.response_BT,
        "completion_mask": batch.mask_BT.long(),
        "advantages": advantages(batch),
    }


def forward(logp_BT: Tensor) -> Any:
    """A forward pass that finds these log-probs, whatever the model."""
    return lambda *_, **__: (logp_BT, torch.zeros_like(logp_BT), None)


def grpo_trainer(logp_BT: Tensor, **options: Any) -> SimpleNamespace:
    """GRPOTrainer as far as its loss reads it."""
    settings = {
        "loss_type": "grpo",
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "beta": 0.0,
    }
    return stub(
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        current_gradient_accumulation_steps=1,
        max_completion_length=LIMIT,
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        _get_per_token_logps_and_entropies=forward(logp_BT),
        **(settings | options),
    )


def grpo_loss(logp_BT: Tensor, batch: Batch, **options: Any) -> Tensor:
    """GRPOTrainer's loss with the advantages in the batch's credit."""
    return grpo_loss_and_metrics(logp_BT, batch, **options)[0]


def grpo_loss_and_metrics(
    logp_BT: Tensor, batch: Batch, **options: Any
) -> tuple[Tensor, dict[str, list[float]]]:
    """The same, and what the trainer would log."""
    trainer = grpo_trainer(logp_BT, **options)
    inputs = rollout(batch) | {
        "old_per_token_logps": batch.proximal_logp_BT,
        "ref_per_token_logps": batch.reference_logp_BT,
        "num_items_in_batch": batch.mask_BT.sum(),
    }
    cls = trl("trainer.grpo_trainer").GRPOTrainer
    loss: Tensor = cls._compute_loss(trainer, trainer.model, inputs)
    return loss, trainer._metrics["train"]


def rloo_loss(logp_BT: Tensor, batch: Batch, old_logp_BT: Tensor, clip: float) -> Tensor:
    """RLOOTrainer's loss with the advantages in the batch's credit."""
    trainer = stub(
        epsilon_low=clip,
        epsilon_high=clip,
        _get_per_token_logps_and_entropies=forward(logp_BT),
    )
    inputs = rollout(batch) | {"old_logps": (old_logp_BT * batch.mask_BT).sum(dim=1)}
    cls = trl("trainer.rloo_trainer").RLOOTrainer
    loss: Tensor = cls._compute_loss(trainer, trainer.model, inputs)
    return loss


def collector(reward_B: Tensor, batch: Batch, group_size: int, beta: float) -> SimpleNamespace:
    """A trainer as far as its scoring of rollouts reads it; its policy is the behaviour."""
    lengths = batch.mask_BT.sum(dim=1).long().tolist()
    answers = [row[:n] for row, n in zip(batch.response_BT.tolist(), lengths, strict=True)]
    trainer = stub(
        args=SimpleNamespace(
            per_device_train_batch_size=len(batch),
            gradient_checkpointing_kwargs=None,
            steps_per_generation=1,
            gradient_accumulation_steps=1,
        ),
        beta=beta,
        num_generations=group_size,
        num_iterations=2,
        environment_factories=None,
        environments=None,
        tools=None,
        mask_truncated_completions=False,
        pad_to_multiple_of=None,
        use_vllm=False,
        ref_model="reference",
        reward_funcs=[None],
        reward_func_names=["reward"],
        reward_weights=torch.ones(1, dtype=torch.float64),
        reward_clip_range=None,
        multi_objective_aggregation="sum_then_normalize",
        _tokenizer=SimpleNamespace(pad_token_id=0),
        _pending_extra_logs={},
        _pending_metrics={},
        _logs=defaultdict(list, rewards=defaultdict(list)),
        _calculate_rewards=lambda *_: reward_B.unsqueeze(1),
    )
    trainer.model.is_gradient_checkpointing = False
    trainer._get_per_token_logps_and_entropies = lambda model, *_, **__: (
        batch.reference_logp_BT if model == "reference" else batch.behavior_logp_BT,
        None,
        None,
    )
    prompts, texts = batch.prompt_BS.tolist(), [""] * len(batch)
    trainer._rollouts = {
        "grpo": (prompts, answers, None, texts, None, {}, None, None),
        "rloo": (prompts, answers, texts),
    }
    return trainer


def grpo_advantages(reward_B: Tensor, batch: Batch, group_size: int, scale: str) -> Tensor:
    """What GRPOTrainer makes of rewards, B. scale: whose deviation divides (or none)."""
    trainer = collector(reward_B, batch, group_size, beta=0.0)
    trainer.scale_rewards = scale
    trainer._generate = lambda _: trainer._rollouts["grpo"]
    cls = trl("trainer.grpo_trainer").GRPOTrainer
    scored = cls._generate_and_score_completions(trainer, [{"prompt": ""}] * len(batch))
    advantage_B: Tensor = scored["advantages"]
    return advantage_B


def rloo_advantages(reward_B: Tensor, batch: Batch, group_size: int, beta: float) -> Tensor:
    """What RLOOTrainer makes of rewards and of the KL to the reference, B."""
    trainer = collector(reward_B, batch, group_size, beta)
    trainer.normalize_advantages = False
    trainer._generate = lambda _: trainer._rollouts["rloo"]
    cls = trl("trainer.rloo_trainer").RLOOTrainer
    scored = cls._generate_and_score_completions(trainer, [{"prompt": ""}] * len(batch))
    advantage_B: Tensor = scored["advantages"]
    return advantage_B
