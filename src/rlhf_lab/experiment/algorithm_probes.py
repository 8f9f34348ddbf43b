"""What an algorithm depends on, found by running it on artificial samples."""

from __future__ import annotations

from dataclasses import replace

from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.types.data import PolicyOutput
from rlhf_lab.types.protocols import Adaptive, Algorithm
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample


def trains_fixed_rows(algo: Algorithm) -> bool:
    """Whether the algorithm trains on a fixed number of a group's rows, whatever its size."""

    def num_trained(size: int) -> int:
        groups = [artificial_group(size)]
        return int(algo.credit(rewards_of(groups), collate(groups, 0)).keep_B.sum())

    return num_trained(4) == num_trained(8)


def reads_reference(algo: Algorithm) -> bool:
    """Whether credit or loss changes with the reference's log-probs. An adaptive algorithm may
    read them as metrics, so it counts as one that does."""
    import torch

    def results(step: float) -> list[float]:
        groups = [artificial_group(4)]
        batch = collate(groups, 0)
        # Unlike in all rows: comparisons do not see what is common to them.
        reference_BT = batch.mask_BT * -(step * torch.arange(1, 5).square()).unsqueeze(1)
        batch = replace(batch, reference_logp_BT=reference_BT)
        credit = algo.credit(rewards_of(groups), batch)
        (part,) = minibatches(batch, credit, algo.reduction, 1, torch.zeros(1).long())
        logp_BT = -0.9 * part.mask_BT
        none_BT, top_BTK = torch.zeros_like(logp_BT), logp_BT.unsqueeze(2)
        policy = PolicyOutput(
            *(logp_BT, none_BT, none_BT),
            top_logp_BTK=top_BTK,
            reference_top_logp_BTK=top_BTK,
        )
        loss = algo.loss(policy, part).loss
        return [float(loss), *credit.value_BT.flatten().tolist(), *credit.keep_B.tolist()]

    return isinstance(algo, Adaptive) or results(0.1) != results(0.2)


def credits_reward_scale(algo: Algorithm) -> bool:
    """Whether credit grows with the rewards: not where the algorithm standardises or whitens them,
    or takes their order alone."""
    groups = [artificial_group(4)]
    batch = collate(groups, 0)
    batch = replace(batch, reference_logp_BT=batch.behavior_logp_BT)
    once, more = (algo.credit(rewards_of(groups) * scale, batch).value_BT for scale in (1, 4))
    return float(more.abs().sum()) > 2 * float(once.abs().sum())


def artificial_group(size: int) -> Group:
    """Samples of one token each, every one with a reward of its own."""
    samples = tuple(Sample((0,), (-1.0,), 0, Finish.eos, "") for _ in range(size))
    rewards = tuple(float(number) for number in range(size))
    return Group(Prompt(0, (0,), Example("", "", "")), samples, rewards)
