"""Small hand-made nouns that several tests share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlhf_lab.cli.main import command_line
from rlhf_lab.models.batching import collate, rewards_of, token_weights
from rlhf_lab.types.data import Batch, PolicyOutput
from rlhf_lab.types.protocols import Algorithm
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample


def sample(logps: list[float], version: int = 0) -> Sample:
    """A sample with these behaviour log-probs; its tokens are 5, 6, 7 ..."""
    tokens = tuple(range(5, 5 + len(logps)))
    return Sample(tokens, tuple(logps), version, Finish.eos, "text")


def group(id_: int, logps: list[list[float]], rewards: list[float], prompt_len: int = 2) -> Group:
    """A scored group; prompts differ in length on purpose when asked to."""
    prompt = Prompt(id_, tuple(range(2, 2 + prompt_len)), Example(f"row/{id_}", "a b", " c"))
    return Group(prompt, tuple(sample(row) for row in logps), tuple(rewards))


def rows(algo: Algorithm, groups: list[Group], reference: list[list[float]]) -> Batch:
    """The kept rows of some groups with credit and weights, as an engine would see them."""
    batch = collate(groups, pad_id=0)
    reference_BT = torch.zeros_like(batch.mask_BT)
    for index, row in enumerate(reference):
        reference_BT[index, : len(row)] = torch.tensor(row)
    batch = replace(batch, reference_logp_BT=reference_BT)
    return credited(algo, groups, batch)[0]


def credited(algo: Algorithm, groups: Sequence[Group], batch: Batch) -> tuple[Batch, Tensor]:
    """The rows that the algorithm trains on, with credit, target and weight; and which they are."""
    credit = algo.credit(rewards_of(groups), batch)
    target_BT = batch.target_BT if credit.target_BT is None else credit.target_BT
    kept = replace(batch, credit_BT=credit.value_BT, target_BT=target_BT).rows(credit.keep_B)
    return replace(kept, weight_BT=token_weights(kept, algo.reduction)), credit.keep_B


def policy_output(values: list[list[float]], batch: Batch) -> PolicyOutput:
    """A forward pass that found these log-probs and the old values; both can be differentiated."""
    logp_BT = torch.zeros_like(batch.mask_BT)
    for index, row in enumerate(values):
        logp_BT[index, : len(row)] = torch.tensor(row)
    values_BT = batch.value_BT.clone().requires_grad_()
    return PolicyOutput(logp_BT.requires_grad_(), torch.zeros_like(logp_BT), values_BT)


def gradient(algo: Algorithm, values: list[list[float]], batch: Batch) -> Tensor:
    """d loss / d log-prob, BT."""
    policy = policy_output(values, batch)
    algo.loss(policy, batch).loss.backward()  # type: ignore[no-untyped-call]
    grad: Any = policy.logp_BT.grad
    assert grad is not None
    return torch.as_tensor(grad)


# What a run records about its config, where a test does not care.
FACTS = {"manifest": {"mode": "?"}, "config_yaml": "seed: 1\n", "resolved": {}, "commit": ""}


def call(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `rlhf-lab ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["rlhf-lab", *arguments])
    return command_line()
