"""Rows read for their last columns, against the models' own forward and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GPTNeoXForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
)

from rlhf_lab.models import layer_stack
from rlhf_lab.models.batching import collate
from rlhf_lab.models.last_token_forward import (
    last_column_stack,
    last_columns,
    last_token_outputs,
    response_logps,
)
from rlhf_lab.models.layer_stack import Stack, stack_of
from rlhf_lab.rewards.model import ModelScorer, row_scores
from rlhf_lab.rewards.model_options import ModelReward
from rlhf_lab.types.data import Batch
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Example, Finish, Group, Prompt, Sample

SIZE = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0, "max_position_embeddings": 40}
NEOX = GPTNeoXConfig(**SIZE, **TOKENS, intermediate_size=64)
GROUPED = SIZE | TOKENS | {"num_key_value_heads": 2, "intermediate_size": 48}
POLICIES = (
    (GPTNeoXForCausalLM, NEOX),
    (LlamaForCausalLM, LlamaConfig(**GROUPED)),
    (Qwen2ForCausalLM, Qwen2Config(**GROUPED)),
    (Qwen3ForCausalLM, Qwen3Config(**GROUPED, head_dim=12)),
)
SCORERS = (
    (GPTNeoXForSequenceClassification, NEOX),
    (LlamaForSequenceClassification, LlamaConfig(**GROUPED)),
    (Qwen2ForSequenceClassification, Qwen2Config(**GROUPED)),
    (Qwen3ForSequenceClassification, Qwen3Config(**GROUPED, head_dim=12)),
)


def made(kind: Any, config: Any, **options: Any) -> Any:
    torch.manual_seed(4)
    model = kind(config, **options)
    for parameter in model.parameters():
        # Away from the tiny initial weights, at which any attention would look alike.
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model.eval()


def scorer(kind: Any, config: Any) -> Any:
    config = type(config)(**{**config.to_dict(), "num_labels": 2})
    return made(kind, config)


def row(number: int) -> tuple[list[int], list[int]]:
    """A prompt of 1 to 9 tokens and a response of 1 to 7."""
    prompt = [2 + (7 * number + k) % 45 for k in range(1 + (5 * number) % 9)]
    return prompt, [2 + (3 * number + 5 * k) % 45 for k in range(1 + (4 * number) % 7)]


def group(number: int) -> Group:
    prompt, response = row(number)
    sample = Sample(tuple(response), (0.0,) * len(response), 0, Finish.eos, "")
    return Group(Prompt(number, tuple(prompt), Example("", "", "")), (sample,))


def batch(numbers: range = range(9)) -> Batch:
    return collate([group(number) for number in numbers], pad_id=0)


@pytest.mark.parametrize(("kind", "config"), POLICIES)
def test_log_probs_are_those_of_the_models_own_forward(kind: Any, config: Any) -> None:
    model = made(kind, config)
    stack = last_column_stack(model)
    assert stack is not None
    with torch.no_grad():
        for read, own in zip(
            response_logps(model, stack, batch(), [0.7, 1.0]),
            response_logps(model, None, batch(), [0.7, 1.0]),
            strict=True,
        ):
            torch.testing.assert_close(read, own, atol=2e-5, rtol=0)
            assert not read[batch().mask_BT == 0].any()


@pytest.mark.parametrize(("kind", "config"), SCORERS)
def test_outputs_at_last_tokens_are_those_of_the_models_own_forward(kind: Any, config: Any) -> None:
    model = scorer(kind, config)
    stack = last_column_stack(model)
    assert stack is not None
    rows = [[*prompt, *response] for prompt, response in map(row, range(9))]
    with torch.no_grad():
        outputs_BH = last_token_outputs(stack, rows, 4)
        own_B = row_scores(model, rows, 1)
    torch.testing.assert_close(outputs_BH[:, 1], own_B, atol=2e-5, rtol=0)


def test_the_rows_beside_a_row_change_nothing() -> None:
    model = made(*POLICIES[0])
    stack = last_column_stack(model)
    with torch.no_grad():
        (together_BT,) = response_logps(model, stack, batch(), [1.0])
        for number in range(9):
            alone = batch(range(number, number + 1))
            (alone_BT,) = response_logps(model, stack, alone, [1.0])
            width = alone_BT.shape[1]
            torch.testing.assert_close(together_BT[number, :width], alone_BT[0], atol=2e-5, rtol=0)


class Mean:
    """A block whose tokens find the mean of what they see."""

    def project(self, hidden_BTE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value = hidden_BTE.unsqueeze(1)
        return torch.zeros_like(value), torch.zeros_like(value), value

    def merge(self, hidden_BTE: Tensor, attended_BTA: Tensor) -> Tensor:
        return attended_BTA


def no_turn(hidden: Tensor, place_BT: Tensor) -> tuple[Tensor, Tensor]:
    ones = torch.ones(*place_BT.shape, 2)
    return ones, torch.zeros_like(ones)


def test_two_layers_of_means_by_hand() -> None:
    def embed(token_BT: Tensor) -> Tensor:
        return token_BT.unsqueeze(2).float().expand(*token_BT.shape, 2)

    stack = Stack(embed, [Mean(), Mean()], lambda h: h, lambda h: h, no_turn, 1.0)
    # Means so far: 2, (2 + 4) / 2, (2 + 4 + 9) / 3; then the means of 2, 3 and 5.
    tokens = torch.tensor([[7, 2, 4, 9, 7]])
    mask = torch.tensor([[0, 1, 1, 1, 0]])
    kept: list[int] = []
    found = last_columns(stack, tokens, mask, 4, lambda number, *_: kept.append(number))
    torch.testing.assert_close(found[0, :3, 0], torch.tensor([2.0, 2.5, 10 / 3]))
    assert kept == [0, 1]
    picked = torch.tensor([0, 0]), torch.tensor([2, 1])
    some = last_columns(stack, tokens, mask, 4, picked=picked)
    torch.testing.assert_close(some[:, 0, 0], torch.tensor([10 / 3, 2.5]))


def test_models_that_are_to_be_read_by_themselves() -> None:
    unknown = GPT2LMHeadModel(GPT2Config(**{**SIZE, "n_embd": 32, "n_head": 4, "n_layer": 2}))
    assert last_column_stack(unknown.eval()) is None
    assert last_column_stack(made(*POLICIES[0]).to(torch.bfloat16)) is None


def test_a_model_that_computes_something_else_reads_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = made(*POLICIES[0])
    stack = stack_of(model)
    assert stack is not None
    other = replace(stack, scaling=2 * stack.scaling)
    monkeypatch.setattr("rlhf_lab.models.last_token_forward.stack_of", lambda _: other)
    assert last_column_stack(model) is None
    assert layer_stack.stack_of(model) is not None


def test_a_scorer_by_length_gives_the_same_scores_in_the_same_order() -> None:
    model = scorer(*SCORERS[0])
    options = ModelReward(label=1, micro_rows=4)
    groups = [group(number) for number in range(9)]

    def read(one: Group, sample: Sample) -> list[int]:
        return [*one.prompt.tokens, *sample.tokens]

    by_length = ModelScorer(model, 0.25, options, read, 1, by_length=True)
    plain = ModelScorer(model, 0.25, options, read, 1)
    for mine, theirs in zip(by_length.score(groups), plain.score(groups), strict=True):
        assert mine == pytest.approx(theirs, abs=2e-5)
    long = [replace(groups[0], prompt=Prompt(0, (3,) * 50, Example("", "", "")))]
    for one in (by_length, plain):
        with pytest.raises(UserError, match="40 positions"):
            one.score(long)
