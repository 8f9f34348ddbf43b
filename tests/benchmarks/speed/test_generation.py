"""The decode loops that the benchmark of generation compares."""

from __future__ import annotations

import pytest

from benchmarks.speed import generation
from benchmarks.speed.generation import BASE, LOOPS, Case, row, speeds
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.rollout.generators.options import Decode
from rlhf_lab.tasks.tldr_nano import TldrNano
from tests.support.engine_cases import TINY


@pytest.mark.parametrize("group_size", [1, 2])
def test_each_decode_loop_has_a_row_and_counts_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, group_size: int
) -> None:
    monkeypatch.setattr(generation, "NEW_TOKENS", 3)
    model, tokenizer = load_policy(TINY, TldrNano().tokenizer(), 0)
    case = Case("tiny", "random", threads=1, group_size=group_size, rows=4)
    found = {speed.loop: speed for speed in speeds(case, model, tokenizer, repeats=1)}
    assert list(found) == list(LOOPS)
    assert {decode for decode in LOOPS.values() if decode} >= {
        Decode.transformers.value,
        Decode.lean.value,
        Decode.static.value,
    }
    # One seed makes the same samples in all loops of the generator; generate draws by its own.
    assert len({speed.mean_tokens for name, speed in found.items() if name != BASE}) == 1
    assert found["generator, static"].mean_tokens > 0
    assert row(found["generator, static"])[4] == "generator, static"
