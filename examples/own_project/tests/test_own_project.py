"""The parts of this project: found by rlhf_lab, and right by themselves."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from own_project import PARTS
from own_project.algorithm import LowBaseline
from own_project.engine import ValueClippedBackend
from own_project.generator import Antithetic
from own_project.reward import places
from own_project.task import Sorting

from rlhf_lab.algos.declared import seen_by_algorithm
from rlhf_lab.experiment.config.own_parts import own_class
from rlhf_lab.models.batching import collate, minibatches, rewards_of
from rlhf_lab.rollout.generators.options import Lengths
from rlhf_lab.training.engines.single import SingleBackend
from rlhf_lab.types.data import PolicyOutput, Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample, Split

PART_NAMES = [(group, name) for group, parts in PARTS.items() for name in parts]


@pytest.mark.parametrize(("group", "name"), PART_NAMES)
def test_a_part_can_be_an_option(group: str, name: str) -> None:
    """Its options have sentences and ranges, and it has all members that its group needs."""
    assert own_class(group, name, PARTS[group][name])().name == name


def test_rlhf_lab_finds_the_installed_table() -> None:
    found = importlib.metadata.entry_points(group="rlhf_lab.plugins")
    assert "own_project" in {point.value for point in found}


def gradient(algo: LowBaseline, size: int = 4, parts: int = 1) -> torch.Tensor:
    """The gradient of the loss by log-probs, on samples of one token with the rewards 0, 1, 2 ...;
    parts: how many micro-batches it is summed over."""
    samples = (Sample((0,), (-1.0,), 0, Finish.eos, ""),) * size
    groups = [Group(Prompt(0, (0,), Example("", "", "")), samples, tuple(map(float, range(size))))]
    # As in a run, reading what the algorithm's `needs` do not declare is an error.
    batch = seen_by_algorithm(collate(groups, 0), algo)
    credit = algo.credit(rewards_of(groups), batch)
    (whole,) = minibatches(batch, credit, algo.reduction, 1, torch.arange(1))
    logp_BT = (-0.9 * whole.mask_BT).requires_grad_()
    for rows in torch.arange(size).chunk(parts):
        keep_B = torch.zeros(size, dtype=torch.bool)
        keep_B[rows] = True
        values_BT = torch.zeros_like(logp_BT[keep_B])
        policy = PolicyOutput(logp_BT[keep_B], values_BT, values_BT)
        algo.loss(policy, whole.rows(keep_B)).loss.backward()
    assert logp_BT.grad is not None
    return logp_BT.grad.flatten()


def test_the_gradient_is_the_reward_less_the_shifted_mean() -> None:
    expected = -(torch.tensor([0.0, 1, 2, 3]) - 1.5 + 0.5) / 4
    assert torch.allclose(gradient(LowBaseline(shift=-0.5)), expected)


def test_micro_batches_sum_to_the_update() -> None:
    """What every loss must do: token weights sum to one over the update, not over a micro-batch."""
    assert torch.allclose(gradient(LowBaseline(), parts=1), gradient(LowBaseline(), parts=4))


def test_rows_are_sorted_repeat_and_belong_to_one_split() -> None:
    task = Sorting(reference_accuracy=1.0)
    for split in Split:
        for row in task.examples(split)[0], task.examples(split)[7]:
            assert row.reference == "".join(sorted(row.prompt[:-1])) == row.hidden["answer"]
            assert task.judge(row, row.reference, True) == 1
            assert task.judge(row, row.reference, False) == 0
    assert task.examples(Split.train)[3] == task.examples(Split.train)[3]


def test_a_limit_that_no_answer_fits_is_refused() -> None:
    with pytest.raises(UserError, match=r"task.max_response_tokens=4: task.digits=4 needs 5"):
        Sorting(max_response_tokens=4)


@pytest.mark.parametrize(
    ("text", "finished", "score"),
    [("1234", True, 1.0), ("1243", True, 0.5), ("12340", True, 0.8), ("1234", False, -1.0)],
)
def test_the_reward_is_the_share_of_right_places(text: str, finished: bool, score: float) -> None:
    example = Example("one", "4321=", "1234", {"answer": "1234"})
    assert places(-1.0, example, text, finished) == score


class Model(torch.nn.Module):
    """The probabilities 0.5, 0.3 and 0.2 for the tokens from 0 to 2, whatever was read."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self) -> None:
        super().__init__()
        self.logit_V = torch.nn.Parameter(torch.tensor([0.5, 0.3, 0.2]).log())

    def forward(self, token_BT: torch.Tensor) -> Any:
        return SimpleNamespace(logits=self.logit_V.expand(*token_BT.shape, -1))


def test_two_samples_of_a_prompt_have_opposite_numbers() -> None:
    """0.1, 0.4, 0.6 lead to the tokens 0, 0 and 1; 0.9, 0.6, 0.4 to 2, which ends a sample."""
    model = Model()
    tokenizer = SimpleNamespace(eos_token_id=2, decode=lambda tokens, **_: str(tokens))
    context: Any = SimpleNamespace(
        policy=lambda: model,
        tokenizer=tokenizer,
        lengths=Lengths(prompt=1, response=3),
        uniforms=lambda *_: np.array([0.1, 0.4, 0.6]),
    )
    options = Antithetic(temperature=1.0, device="cpu", dtype="float32")
    weights = Weights(3, dict(model.named_parameters()))
    chunk = Chunk(0, 0, (Prompt(0, (1,), Example("one", "1", "2")),), group_size=2)
    ((first, second),) = (g.samples for g in options.build(context).generate(weights, chunk))
    assert (first.tokens, first.finish, first.version) == ((0, 0, 1), Finish.length, 3)
    assert (second.tokens, second.finish, second.version) == ((2,), Finish.eos, 3)
    assert np.exp(first.logps) == pytest.approx([0.5, 0.5, 0.3])


def test_gradients_are_clipped_before_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    network = torch.nn.Linear(2, 1, bias=False)
    network.weight.grad = torch.tensor([[3.0, -0.1]])
    backend = object.__new__(ValueClippedBackend)
    backend.networks, backend.largest = cast(Any, network), 0.5
    monkeypatch.setattr(SingleBackend, "step", lambda *_: {})
    backend.step(0.1)
    assert torch.equal(network.weight.grad, torch.tensor([[0.5, -0.1]]))
