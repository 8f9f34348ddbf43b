"""Random ragged batches in float64, and the comparison of a loss with somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlhf_lab.algos.common import per_token
from rlhf_lab.models.batching import no_text, token_weights
from rlhf_lab.types.data import Batch, LossOutput, PolicyOutput
from rlhf_lab.types.protocols import Algorithm

TOLERANCE = 1e-6
SEEDS = range(8)
LIMIT = 12

Record = Callable[[str, object], None]
Loss = Callable[[Tensor], Tensor]


def ragged_batch(
    algo: Algorithm, seed: int, num_groups: int = 5, group_size: int = 2, ragged: bool = True
) -> Batch:
    """Rows of 1 to 9 tokens under a limit of 12, with advantages of both signs as credit.

    Behaviour, proximal and reference log-probs all differ, and none is zero where a pad is: a loss
    that looks at pads shows.
    """
    rng = torch.Generator().manual_seed(seed)
    shape = (num_groups * group_size, 9)
    lengths = (1, 10) if ragged else (9, 10)
    length_B1 = torch.randint(*lengths, (shape[0], 1), generator=rng)
    length_B1[0] = 9
    mask_BT = (torch.arange(9) < length_B1).double()
    behavior_logp_BT = -0.1 - 4 * torch.rand(shape, generator=rng, dtype=torch.float64)
    batch = Batch(
        prompt_BS=torch.randint(2, 50, (shape[0], 4), generator=rng),
        prompt_mask_BS=torch.ones(shape[0], 4, dtype=torch.long),
        response_BT=torch.randint(2, 50, shape, generator=rng),
        mask_BT=mask_BT,
        behavior_logp_BT=behavior_logp_BT,
        proximal_logp_BT=behavior_logp_BT + 0.05 * normal(shape, rng),
        reference_logp_BT=behavior_logp_BT + 0.3 * normal(shape, rng),
        writer_logp_BT=behavior_logp_BT,
        lag_BT=torch.zeros(shape, dtype=torch.float64),
        entropy_BT=torch.zeros(shape, dtype=torch.float64),
        value_BT=normal(shape, rng),
        credit_BT=torch.zeros(shape, dtype=torch.float64),
        target_BT=normal(shape, rng),
        step_reward_BT=torch.zeros(shape, dtype=torch.float64),
        turn_BT=torch.zeros(shape, dtype=torch.long),
        weight_BT=torch.zeros(shape, dtype=torch.float64),
        group_B=torch.arange(num_groups).repeat_interleave(group_size),
        version_B=torch.zeros(shape[0], dtype=torch.long),
        max_response_B=torch.full((shape[0],), LIMIT),
        has_reference_B=torch.ones(shape[0], dtype=torch.bool),
        log_ratio_gradient_B=torch.zeros(shape[0], dtype=torch.float64),
        **no_text(shape[0]),
    )
    return credited(algo, batch, normal((shape[0],), rng))


def credited(algo: Algorithm, batch: Batch, advantage_B: Tensor) -> Batch:
    """The batch with these advantages, and the token weights that the algorithm asks for."""
    batch = replace(batch, credit_BT=per_token(advantage_B, batch))
    return replace(batch, weight_BT=token_weights(batch, algo.reduction))


def normal(shape: tuple[int, ...], rng: torch.Generator) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def policy_logps(batch: Batch, seed: int, spread: float = 0.3) -> Tensor:
    """Log-probs of the policy that trains: the proximal ones plus noise, to be differentiated."""
    rng = torch.Generator().manual_seed(1000 + seed)
    noise_BT = normal(tuple(batch.mask_BT.shape), rng)
    return (batch.proximal_logp_BT + spread * noise_BT).requires_grad_()


def advantages(batch: Batch) -> Tensor:
    """The credit of whole rows, B; every row has a first token."""
    return batch.credit_BT[:, 0]


def graded(loss: Tensor, *inputs: Tensor) -> list[Tensor]:
    """A loss and its gradients."""
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


def agree(record: Record, name: str, ours: list[Tensor], theirs: list[Tensor]) -> None:
    """Each of ours is within the tolerance of theirs; the largest difference is written down."""
    worst = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    record("largest_difference", (name, worst))
    assert any(float(b.abs().max()) > 1e-4 for b in theirs[1:] or theirs), "nothing was compared"
    assert worst <= TOLERANCE


def compare(
    record: Record, name: str, algo: Algorithm, batch: Batch, logp_BT: Tensor, theirs: Loss
) -> LossOutput:
    """Loss and gradient with respect to log-probs, ours against theirs."""
    output = algo.loss(PolicyOutput(logp_BT, torch.zeros_like(logp_BT)), batch)
    agree(record, name, graded(output.loss, logp_BT), graded(theirs(logp_BT), logp_BT))
    return output


def share_clipped(output: LossOutput, batch: Batch) -> float:
    """Share of the response tokens whose gradient the clip took."""
    clipped_BT: Any = output.clipped_BT
    return float((clipped_BT * batch.mask_BT).sum() / batch.mask_BT.sum())


def first_word(part: object) -> str:
    """Test ids: the name, not the options."""
    return part if isinstance(part, str) else type(part).__name__
