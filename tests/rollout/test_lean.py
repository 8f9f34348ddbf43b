"""The lean decode loop against the model's own forward, and drawing by blocks."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlhf_lab.models.last_token_forward import per_query
from rlhf_lab.models.layer_stack import unknown_part
from rlhf_lab.rollout.feeds import SegmentRecorder
from rlhf_lab.rollout.generators import packed_products
from rlhf_lab.rollout.generators.decoders import decoder_of, distance
from rlhf_lab.rollout.generators.draw import BLOCK, draw
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.lean import LeanDecoder, alike, lean_decoder
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.rollout.generators.plain import PlainDecoder
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Finish, Prompt

SIZE = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = SIZE | {"num_key_value_heads": 2, "intermediate_size": 48}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}


def neox(**options: Any) -> Any:
    config = GPTNeoXConfig(**SIZE, **SPECIAL, intermediate_size=64, **options)
    return GPTNeoXForCausalLM(config)


def models(kind: str) -> Any:
    torch.manual_seed(4)
    made = {
        "neox": lambda: neox(),
        "neox in sequence": lambda: neox(use_parallel_residual=False, rotary_pct=0.5),
        "neox whole": lambda: neox(rotary_pct=1.0, tie_word_embeddings=True),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**GROUPED, **SPECIAL, head_dim=12)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**GROUPED, **SPECIAL)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**GROUPED, **SPECIAL, head_dim=12)),
    }[kind]()
    for parameter in made.parameters():
        # Away from the tiny initial weights, at which any attention would look alike.
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made.eval()


KINDS = ("neox", "neox in sequence", "neox whole", "llama", "qwen2", "qwen3")


class Words:
    """A tokenizer that writes numbers."""

    eos_token_id = 1

    def decode(self, tokens: Any, *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, tokens))


def chunk(num: int = 12, size: int = 3, greedy: bool = False, words: int = 290) -> Chunk:
    """Prompts of 1 to 12 tokens."""
    rows = [tuple(2 + (7 * n + k) % words for k in range(1 + (5 * n) % 12)) for n in range(num)]
    row = Example("row", "a", "b")
    return Chunk(0, 0, tuple(Prompt(n, text, row) for n, text in enumerate(rows)), size, greedy)


def generator(model: Any, decode: str, length: int = 12) -> HFGenerator:
    sampling = HFSampling(temperature=1.0, decode=Decode(decode))
    return HFGenerator(model, Words(), sampling, length, functools.partial(uniforms, 5))


def of(model: Any, version: int = 0) -> Weights:
    return Weights(version, {k: v.detach().clone() for k, v in model.named_parameters()})


@pytest.mark.parametrize("kind", KINDS)
def test_the_lean_loop_computes_what_the_model_does(kind: str) -> None:
    model = models(kind)
    decoder = lean_decoder(model)
    assert decoder is not None
    assert distance(model, decoder) < 0.2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("greedy", [False, True])
def test_both_loops_write_the_same_samples(kind: str, greedy: bool) -> None:
    model = models(kind)
    wanted = chunk(greedy=greedy)
    lean = generator(models(kind), "lean").generate(of(model), wanted)
    plain = generator(models(kind), "transformers").generate(of(model), wanted)
    for one, other in zip(lean, plain, strict=True):
        for mine, theirs in zip(one.samples, other.samples, strict=True):
            assert mine.tokens == theirs.tokens
            assert mine.logps == pytest.approx(theirs.logps, abs=1e-4)


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
    reason="this torch has no oneDNN",
)
@pytest.mark.parametrize("decode", ["transformers", "lean", "static"])
def test_a_loop_writes_the_same_samples_over_packed_weights(
    decode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("neox", "llama"):
        plain = generator(models(kind), decode)
        monkeypatch.setattr(packed_products, "CACHE_BYTES", 0)
        packed = generator(models(kind), decode)
        assert len(packed._packed) > len(plain._packed) == 0
        monkeypatch.undo()
        for version in (0, 1):
            weights = of(models(kind), version)
            weights.state[next(iter(weights.state))] *= 1 - version / 2
            drawn = [made.generate(weights, chunk(num=8)) for made in (plain, packed)]
            for one, other in zip(*drawn, strict=True):
                for mine, theirs in zip(one.samples, other.samples, strict=True):
                    assert mine.tokens == theirs.tokens
                    assert mine.logps == pytest.approx(theirs.logps, abs=1e-4)


class Asked:
    """Weights that note at which steps they were asked for."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.steps: list[int] = []

    def at(self, step: int) -> Weights:
        self.steps.append(step)
        return self._weights


@pytest.mark.parametrize("decode", ["lean", "static", "transformers"])
def test_rows_that_end_leave_and_the_others_go_on_as_they_were(decode: str) -> None:
    # With so few words the end token comes often: rows end one after the other.
    torch.manual_seed(4)
    model = LlamaForCausalLM(LlamaConfig(**GROUPED | {"vocab_size": 14}, **SPECIAL)).eval()
    made = generator(model, decode, length=30)
    kept: list[int] = []
    keep = made._decoder.keep
    made._decoder.keep = lambda rows: (kept.append(len(rows)), keep(rows))[1]  # type: ignore[func-returns-value, method-assign]
    feed = Asked(of(model))
    groups = made.generate(feed, chunk(20, 2, words=11))
    samples = [s for g in groups for s in g.samples]
    assert len(kept) >= 2 and kept == sorted(kept, reverse=True)
    assert {s.finish for s in samples} <= {Finish.eos, Finish.length}
    longest = max(len(s.tokens) for s in samples)
    assert feed.steps == list(range(longest))
    for group in groups:
        for sample in group.samples:
            text = torch.tensor([[*group.prompt.tokens, *sample.tokens]])
            with torch.inference_mode():
                logits = model(input_ids=text).logits[0, len(group.prompt.tokens) - 1 : -1]
            found = logits.log_softmax(-1).gather(1, torch.tensor(sample.tokens).unsqueeze(1))
            assert sample.logps == pytest.approx(found.squeeze(1).tolist(), abs=1e-4)


@pytest.mark.parametrize("decode", ["lean", "static", "transformers"])
def test_a_sample_that_is_continued_is_the_same_sample(decode: str) -> None:
    model = models("neox")
    made = generator(model, decode, length=11)
    whole = made.generate(of(model), chunk())
    part = chunk()
    for stop in (4, 8, 0):
        recorder = SegmentRecorder(of(model), lambda: None)
        groups = made.generate(recorder, replace(part, stop_at=stop))
        begun = tuple(s for g in groups for s in g.samples)
        assert recorder.segments[0][0] == {4: 0, 8: 4, 0: 8}[stop]
        ends = {s.finish for s in begun}
        assert (Finish.unfinished in ends) == (stop != 0)
        part = replace(part, begun=begun)
    for one, other in zip(groups, whole, strict=True):
        for mine, theirs in zip(one.samples, other.samples, strict=True):
            assert (mine.tokens, mine.finish, mine.text) == (
                theirs.tokens,
                theirs.finish,
                theirs.text,
            )
            assert mine.logps == pytest.approx(theirs.logps, abs=1e-5)


def test_samples_that_had_ended_stay_as_they_are() -> None:
    model = models("neox")
    made = generator(model, "auto", length=6)
    begun = tuple(s for g in made.generate(of(model, 3), chunk()) for s in g.samples)
    short = replace(begun[4], tokens=begun[4].tokens[:2], logps=begun[4].logps[:2])
    short = replace(short, finish=Finish.unfinished)
    given = replace(chunk(), begun=(*begun[:4], short, *begun[5:]))
    after = tuple(s for g in made.generate(of(model, 5), given) for s in g.samples)
    assert after[:4] + after[5:] == begun[:4] + begun[5:]
    assert after[4].tokens == begun[4].tokens
    assert after[4].versions == (3, 3, 5, 5, 5, 5)


def test_a_model_that_does_something_else_is_found_out() -> None:
    model = models("llama")
    assert isinstance(decoder_of(model, Decode.auto)[0], LeanDecoder)
    # Something that only the model's own forward runs.
    model.model.layers[0].register_forward_hook(lambda *given: given[2] * 1.05)
    with pytest.raises(UserError, match=r"generator\.decode=auto"):
        decoder_of(model, Decode.lean)
    decoder, note = decoder_of(model, Decode.auto)
    assert isinstance(decoder, PlainDecoder)
    assert "generator.decode=auto" in note and "LlamaForCausalLM" in note
    made = HFGenerator(model, Words(), HFSampling(), 4, functools.partial(uniforms, 5))
    assert [made.report().notes, made.report().notes] == [(note,), ()]


def test_a_model_that_is_not_known_is_decoded_by_transformers() -> None:
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2, **SPECIAL)
    model = GPT2LMHeadModel(config).eval()
    assert isinstance(decoder_of(model, Decode.auto)[0], PlainDecoder)
    with pytest.raises(UserError, match="GPT2LMHeadModel"):
        decoder_of(model, Decode.lean)
    windowed = Qwen2ForCausalLM(
        Qwen2Config(
            **GROUPED, **SPECIAL, use_sliding_window=True, sliding_window=4, max_window_layers=1
        )
    )
    assert lean_decoder(windowed) is None


def test_the_reason_for_a_slower_loop_is_named() -> None:
    """A class or an attention that is not known, by what the reader can look up."""
    size = GROUPED | SPECIAL
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    reasons = {
        "GPT2LMHeadModel": GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2)),
        "4 tokens": MistralForCausalLM(MistralConfig(**size, sliding_window=4)),
        "dynamic": LlamaForCausalLM(LlamaConfig(**size, rope_parameters=dynamic)),
        "": MistralForCausalLM(MistralConfig(**size, sliding_window=None)),
    }
    for reason, model in reasons.items():
        found = unknown_part(model)
        assert reason in found and bool(reason) == bool(found)
        assert (lean_decoder(model) is None) == bool(reason)


def test_a_class_of_the_user_is_not_taken_for_its_parent() -> None:
    own = type("LlamaForCausalLM", (LlamaForCausalLM,), {"__module__": "mine.modeling_llama"})
    model = own(LlamaConfig(**GROUPED, **SPECIAL))
    assert lean_decoder(model) is None and lean_decoder(models("llama")) is not None


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    sampling = HFSampling(device="cuda")
    with pytest.raises(UserError, match=r"generator\.device=cpu or auto"):
        HFGenerator(models("neox"), Words(), sampling, 4, functools.partial(uniforms, 5))


@given(st.lists(st.integers(1, 200), min_size=1, max_size=150), st.sampled_from([0.25, 0.5]))
def test_prompts_are_read_with_those_of_their_length(lengths: list[int], spare: float) -> None:
    parts = list(alike(lengths, spare))
    assert sorted(place for part in parts for place in part) == list(range(len(lengths)))
    for part in parts:
        together = [lengths[place] for place in part]
        assert min(together) >= (1 - spare) * max(together)
        assert len(part) <= 64


# Drawing.


def sampled(share: list[float], uniform: list[float], greedy: bool = False) -> list[int]:
    logits = torch.tensor(share, dtype=torch.float64).log().float().expand(len(uniform), -1)
    is_greedy = torch.full((len(uniform),), greedy)
    tokens, logps = draw(logits, 1.0, torch.tensor(uniform, dtype=torch.float64), is_greedy)
    expected = torch.tensor(share)[tokens].log()
    assert torch.allclose(logps, expected, atol=2e-6)
    return [int(token) for token in tokens]


def test_each_token_has_its_own_stretch_of_the_line() -> None:
    line = [0.0, 0.249, 0.251, 0.4, 0.749, 0.751, 0.999999]
    assert sampled([0.25, 0.5, 0.0, 0.25], line) == [0, 0, 1, 1, 1, 3, 3]
    assert sampled([0.25, 0.5, 0.0, 0.25], line, greedy=True) == [1] * len(line)


@given(st.integers(2, 3 * BLOCK), st.integers(0, 2**32))
def test_blocks_change_nothing_and_what_is_impossible_is_never_drawn(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    share = np.where(rng.random(size) < 0.5, rng.exponential(size=size), 0.0)
    share[rng.integers(size)] = 1.0
    share /= share.sum()
    # The middle of each possible token's stretch, and both ends of the line.
    ends = share.cumsum()
    possible = np.flatnonzero(share > 1e-5)
    middle = (ends - share / 2)[possible]
    assert sampled(share.tolist(), middle.tolist()) == possible.tolist()
    first, last = sampled(share.tolist(), [0.0, float(np.nextafter(1.0, 0.0))])
    assert share[first] > 0 and share[last] > 0


def test_keys_once_for_each_head_of_queries_find_the_same() -> None:
    """What prompts are read with on a GPU, where masked kernels do not share keys."""
    torch.manual_seed(0)
    query, shared = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    attend = torch.nn.functional.scaled_dot_product_attention
    own = per_query(shared, query)
    assert own.shape == query.shape
    assert torch.equal(own[:, 2], shared[:, 0])
    assert torch.equal(own[:, 3], shared[:, 1])
    expected = attend(query, shared, shared, mask, enable_gqa=True)
    assert torch.allclose(attend(query, own, own, mask), expected, atol=1e-6)
