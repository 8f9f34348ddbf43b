"""The decode loops that the benchmark of generation compares."""

from __future__ import annotations

import pytest

from benchmarks.speed import generation
from benchmarks.speed.generation import BASE, LOOPS, rows_of
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
    rows = rows_of(model, tokenizer, group_size, threads=1, repeats=1, rows=4)
    assert [name for name, *_ in rows] == list(LOOPS)
    assert set(LOOPS.values()) >= {Decode.transformers, Decode.lean, Decode.static}
    # One seed makes the same samples in all loops of the generator; generate draws by its own.
    (tokens,) = {row[-1] for row in rows if row[0] != BASE}
    assert float(tokens) > 0
    assert rows[0][2] == "1.00"
