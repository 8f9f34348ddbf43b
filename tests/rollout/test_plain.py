"""Decoding over a model's own cache, whatever it holds, and without a cache."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from rlhf_lab.rollout.generators.decoders import decoder_of, distance, require_idle_rows
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.rollout.generators.plain import PlainDecoder, RereadingDecoder
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Prompt
from tests.support.tiny_families import ALIBI, HYBRID, tiny
from tests.support.variants import names

KINDS = names([*HYBRID, *ALIBI, "gpt_neo", "gemma3_text"], ["lfm2", "mamba", "falcon_h1", "bloom"])


class Words:
    """A tokenizer that writes numbers."""

    eos_token_id = 1

    def decode(self, tokens: Any, *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, tokens))


def samples(model: Any, decoder: Any) -> list[Any]:
    """Of prompts of 1 to 12 tokens, two each; some end early, and leave the batch."""
    sampling = HFSampling(temperature=1.0, decode=Decode.transformers)
    made = HFGenerator(model, Words(), sampling, 10, functools.partial(uniforms, 5))
    object.__setattr__(made._writer, "decoder", decoder)
    row = Example("row", "a", "b")
    texts = [tuple(2 + (7 * n + k) % 50 for k in range(1 + (5 * n) % 12)) for n in range(6)]
    prompts = tuple(Prompt(n, text, row) for n, text in enumerate(texts))
    state = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    groups = made.generate(Weights(0, state), Chunk(0, 0, prompts, 2))
    return [(group.prompt.tokens, sample) for group in groups for sample in group.samples]


def alone(model: Any, prompt: Any, tokens: Any) -> list[float]:
    """Log-probs of a row that is read by itself."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    found = torch.log_softmax(logits, dim=-1)
    return [float(found[place, token]) for place, token in enumerate(tokens)]


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_log_probs_of_single_rows(kind: str) -> None:
    model = tiny(kind)
    decoder, note = decoder_of(model, Decode.auto)
    assert isinstance(decoder, PlainDecoder) and type(model).__name__ in note
    for prompt, sample in samples(model, decoder):
        expected = alone(model, prompt, sample.tokens)
        assert sample.logps == pytest.approx(expected, abs=1e-3)


def test_a_cache_that_cannot_be_repeated_is_not_taken() -> None:
    model = tiny("minimax")
    decoder, note = decoder_of(model, Decode.auto)
    assert isinstance(decoder, RereadingDecoder)
    assert "MiniMaxForCausalLM" in note
    for prompt, sample in samples(model, decoder):
        assert sample.logps == pytest.approx(alone(model, prompt, sample.tokens), abs=1e-3)


def test_a_cache_that_finds_something_else_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("gpt2")
    forgets = lambda self, rows: None  # noqa: E731
    decoder, note = decoder_of(model, Decode.transformers)
    assert isinstance(decoder, PlainDecoder) and "GPT2LMHeadModel" not in note
    monkeypatch.setattr("transformers.cache_utils.DynamicCache.reorder_cache", forgets)
    decoder, note = decoder_of(model, Decode.transformers)
    assert isinstance(decoder, RereadingDecoder) and "GPT2LMHeadModel" in note


def test_rows_that_are_read_anew_bear_idle_steps() -> None:
    model = tiny("qwen3")
    assert distance(model, RereadingDecoder(model)) <= 1
    require_idle_rows(model, RereadingDecoder(model))


@pytest.mark.parametrize("kind", ["mamba", "lfm2", "gpt_neo"])
def test_states_and_windows_do_not_bear_idle_steps(kind: str) -> None:
    model = tiny(kind)
    with pytest.raises(UserError, match=r"episodes\.decode_ahead=0"):
        require_idle_rows(model, PlainDecoder(model))
