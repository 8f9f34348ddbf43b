"""The processor of greedy rows under both model runners of vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.vllm


def greedy_at(temperature: float | None) -> Any:
    extra = None if temperature is None else {"greedy_temperature": temperature}
    return SimpleNamespace(extra_args=extra)


def by_slots(num_slots: int) -> Any:
    """The processor as Model Runner V2 makes it."""
    from rlhf_lab.rollout.generators.vllm.plugin import GreedyTemperature

    state = SimpleNamespace(device=torch.device("cpu"), max_num_reqs=num_slots)
    return GreedyTemperature(None, state)


@pytest.mark.parametrize("is_name", [True, False])
def test_both_loaders_of_vllm_accept_the_processor(is_name: bool) -> None:
    """V2 runs on every CUDA device and refuses what is only a processor of V1."""
    from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns
    from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs

    from rlhf_lab.rollout.generators.vllm.plugin import GreedyTemperature
    from rlhf_lab.rollout.generators.vllm.servers import PROCESSOR

    named = PROCESSOR if is_name else GreedyTemperature
    assert _load_v2_logitsprocs([named]) == [GreedyTemperature]
    assert _load_logitsprocs_by_fqcns([named]) == [GreedyTemperature]


def test_rows_are_divided_by_the_temperature_of_their_slot() -> None:
    processor = by_slots(4)
    assert processor.add_request(2, greedy_at(0.5))
    assert not processor.add_request(0, greedy_at(None))
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    context = SimpleNamespace(expanded_idx_mapping=torch.tensor([2, 0, 2]))
    expected = torch.tensor([[2.0, 4.0], [3.0, 4.0], [10.0, 12.0]])
    assert torch.equal(processor.apply(logits, context), expected)


def test_a_slot_forgets_the_request_that_had_it_before() -> None:
    processor = by_slots(2)
    processor.add_request(1, greedy_at(0.5))
    processor.add_request(1, greedy_at(None))
    context = SimpleNamespace(expanded_idx_mapping=torch.tensor([1]))
    assert torch.equal(processor.apply(torch.ones(1, 3), context), torch.ones(1, 3))
