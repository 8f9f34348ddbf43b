"""Static decoding: the same samples as the other loops, with weights, rows and flags that change
beside a step that never does."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from rlhf_lab.rollout.feeds import SegmentRecorder
from rlhf_lab.rollout.generators import decoders
from rlhf_lab.rollout.generators.decoders import decoder_of, distance, faster_decoder, faster_loop
from rlhf_lab.rollout.generators.draw import BLOCK, draw, drawn
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.lean import LeanDecoder
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.rollout.generators.static import StaticDecoder, bucket, static_decoder
from rlhf_lab.rollout.generators.static_writer import FLAG_STEPS, Replays, StaticWriter
from rlhf_lab.rollout.worker import reached_segments
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Group
from tests.rollout.test_lean import GROUPED, KINDS, SPECIAL, Words, chunk, models, of
from tests.support.recorded_graph import RecordedGraph

pytestmark = pytest.mark.usefixtures("costly")

GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def generator(model: Any, decode: str, length: int = 12, device: str = "cpu") -> HFGenerator:
    sampling = HFSampling(temperature=1.0, decode=Decode(decode), device=device)
    return HFGenerator(model, Words(), sampling, length, functools.partial(uniforms, 5))


def few_words() -> Any:
    """A model that ends its samples soon, one after the other."""
    torch.manual_seed(4)
    return LlamaForCausalLM(LlamaConfig(**GROUPED | {"vocab_size": 14}, **SPECIAL)).eval()


def assert_same(found: tuple[Group, ...], expected: tuple[Group, ...]) -> None:
    for one, other in zip(found, expected, strict=True):
        for mine, theirs in zip(one.samples, other.samples, strict=True):
            assert (mine.tokens, mine.finish, mine.versions) == (
                theirs.tokens,
                theirs.finish,
                theirs.versions,
            )
            assert mine.logps == pytest.approx(theirs.logps, abs=1e-4)


class Changing:
    """Other weights at every token, as an update in flight brings them."""

    def __init__(self, model: Any) -> None:
        self._first = of(model)
        self.steps: list[int] = []

    def at(self, step: int) -> Weights:
        self.steps.append(step)
        state = {name: p * (1 + 0.02 * step) for name, p in self._first.state.items()}
        return Weights(step, state)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Steps are recorded and replayed on the CPU as they are captured on a GPU."""
    graphs: list[RecordedGraph] = []

    def captured(_: Replays, function: Any) -> RecordedGraph:
        graphs.append(RecordedGraph(function))
        return graphs[-1]

    begun = Replays.__init__

    def begin(self: Replays, device: torch.device) -> None:
        begun(self, device)
        self._captures = True

    monkeypatch.setattr(Replays, "__init__", begin)
    monkeypatch.setattr(Replays, "_captured", captured)
    return graphs


@pytest.mark.parametrize("kind", KINDS)
def test_the_static_step_computes_what_the_model_does(kind: str) -> None:
    model = models(kind)
    decoder = static_decoder(model)
    assert decoder is not None
    assert distance(model, decoder) < 0.2


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("greedy", [False, True])
def test_static_samples_are_those_of_the_other_loops(device: str, kind: str, greedy: bool) -> None:
    wanted = chunk(greedy=greedy)
    weights = of(models(kind))
    static = generator(models(kind), "static", device=device).generate(weights, wanted)
    for decode in ("lean", "transformers"):
        other = generator(models(kind), decode, device=device).generate(weights, wanted)
        assert_same(static, other)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", ["neox", "llama", "qwen2"])
def test_weights_may_change_at_every_token(device: str, kind: str) -> None:
    static = generator(models(kind), "static", 20, device).generate(
        Changing(models(kind)), chunk(words=40)
    )
    plain = generator(models(kind), "transformers", 20, device)
    assert_same(static, plain.generate(Changing(models(kind)), chunk(words=40)))


@pytest.mark.parametrize("kind", ["neox", "neox in sequence", "llama", "qwen2"])
def test_a_recorded_step_is_replayed_with_new_weights(
    kind: str, recording: list[RecordedGraph]
) -> None:
    made = generator(models(kind), "static", 20)
    plain = generator(models(kind), "transformers", 20)
    for greedy in (False, True):
        wanted = chunk(greedy=greedy)
        found = made.generate(Changing(models(kind)), wanted)
        assert_same(found, plain.generate(Changing(models(kind)), wanted))
    assert len(recording) >= 2
    once = len(recording)
    # Another chunk of the same shape finds all of its graphs.
    again = made.generate(of(models(kind), 3), chunk(greedy=True))
    assert_same(again, plain.generate(of(models(kind), 3), chunk(greedy=True)))
    assert len(recording) == once


@pytest.mark.parametrize("replayed", [False, True])
def test_ended_rows_leave_and_leave_no_trace(
    replayed: bool, request: pytest.FixtureRequest
) -> None:
    if replayed:
        request.getfixturevalue("recording")
    model = few_words()
    made = generator(few_words(), "static", length=60)
    kept: list[int] = []
    keep = made._decoder.keep
    made._decoder.keep = lambda rows: (kept.append(len(rows)), keep(rows))[1]  # type: ignore[func-returns-value, method-assign]
    feed = Changing(model)
    wanted = chunk(20, 2, words=11)
    groups = made.generate(feed, wanted)
    other = Changing(model)
    assert_same(groups, generator(few_words(), "transformers", 60).generate(other, wanted))
    assert len(kept) >= 2 and kept == sorted(kept, reverse=True)
    # Flags are read every few tokens: no more than that are written in vain.
    assert feed.steps[: len(other.steps)] == other.steps
    assert len(other.steps) <= len(feed.steps) < len(other.steps) + FLAG_STEPS
    recorder = SegmentRecorder(Changing(model), lambda: None)
    made.generate(recorder, wanted)
    assert reached_segments(recorder.segments, groups) == tuple((n, n) for n in other.steps)


def test_uniforms_end_the_rows(recording: list[RecordedGraph]) -> None:
    made = generator(models("neox"), "static", length=11)
    whole = made.generate(of(models("neox")), chunk())
    part = chunk()
    for stop in (1, 3, 9, 0):
        groups = made.generate(of(models("neox")), replace(part, stop_at=stop))
        part = replace(part, begun=tuple(s for g in groups for s in g.samples))
        assert max(len(s.tokens) for s in part.begun) == (stop or 11)
    assert_same(groups, whole)


def test_buffers_stay_where_they_are_until_a_chunk_needs_larger_ones(
    recording: list[RecordedGraph],
) -> None:
    made = generator(models("llama"), "static", length=20)
    plain = generator(models("llama"), "transformers", length=20)
    weights = of(models("llama"))
    decoder = made._decoder
    assert isinstance(decoder, StaticDecoder)
    counts = []
    for wanted in (chunk(4, 2), chunk(3, 2), chunk(12, 3), long_chunk(), chunk(4, 2)):
        assert_same(made.generate(weights, wanted), plain.generate(weights, wanted))
        counts.append(decoder.num_caches)
    assert counts[0] == counts[1] < counts[2] < counts[3] == counts[4]


def long_chunk() -> Chunk:
    """Prompts that pass from one span of attention to the next while they are answered."""
    made = chunk(3, 2)
    texts = [p.tokens * 60 for p in made.prompts]
    prompts = zip(made.prompts, texts, strict=True)
    return replace(made, prompts=tuple(replace(p, tokens=t[-250:]) for p, t in prompts))


def test_the_choice_of_the_loop_follows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models("neox")
    assert isinstance(decoder_of(model, Decode.auto)[0], LeanDecoder)
    assert isinstance(decoder_of(model, Decode.static)[0], StaticDecoder)
    on_gpu: Any = SimpleNamespace(device=torch.device("cuda"), config=model.config)
    monkeypatch.setattr(decoders, "static_decoder", lambda model: ("static", model))
    monkeypatch.setattr(decoders, "distance", lambda *_: 0.0)
    loop = faster_loop(on_gpu, Decode.auto)
    found: Any = faster_decoder(on_gpu, loop)
    assert found == (("static", on_gpu), "")
    monkeypatch.undo()
    assert faster_decoder(GPT2LMHeadModel(tiny_gpt2()), Decode.static)[0] is None
    with pytest.raises(UserError, match=r"generator\.decode=static: .*GPT2LMHeadModel"):
        decoder_of(GPT2LMHeadModel(tiny_gpt2()), Decode.static)


def tiny_gpt2() -> GPT2Config:
    return GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2, **SPECIAL)


def test_a_step_has_fewer_operations_than_the_lean_one() -> None:
    """What a GPU pays for: operations, not their size."""

    def count(decoder: Any) -> int:
        with torch.inference_mode():
            decoder.begin([[3, 4], [5]], 1, 4)
            decoder.step(torch.tensor([3, 4]))
            token_B = torch.tensor([3, 4])
            return RecordedGraph(lambda: decoder.step(token_B)).num_kernels

    for kind in ("neox", "llama"):
        model = models(kind)
        lean = decoder_of(model, Decode.lean)[0]
        assert count(static_decoder(model)) < 0.9 * count(lean)


@given(st.integers(1, 5000))
def test_buckets_take_their_rows(rows: int) -> None:
    assert rows <= bucket(rows) <= max(8, 1.5 * rows + 256)


@given(st.integers(2, 3 * BLOCK), st.integers(0, 2**32))
def test_sums_of_whole_numbers_draw_the_same_tokens(size: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    share_BV = torch.softmax(3 * torch.randn(50, size, generator=rng), dim=1)
    share_BV = share_BV.where(torch.rand(50, size, generator=rng) < 0.7, 0.0)
    share_BV[:, 0] += 1e-3
    blocks = -(-size // BLOCK)
    pad = blocks * BLOCK - size
    share_BNK = torch.nn.functional.pad(share_BV, (0, pad)).view(50, blocks, BLOCK)
    uniform_B1 = torch.rand(50, 1, generator=rng, dtype=torch.float64)
    by_floats, by_counts = (drawn(share_BNK, uniform_B1, counted) for counted in (False, True))
    assert torch.equal(by_floats, by_counts)
    # What is impossible is never drawn, at the ends of the line too.
    for end in (0.0, 1.0 - 2**-53):
        token_B1 = drawn(share_BNK, torch.full_like(uniform_B1, end), True)
        assert (share_BV.gather(1, token_B1) > 0).all()


@pytest.mark.gpu
def test_the_draw_is_deterministic_on_a_gpu() -> None:
    logits_BV = 5 * torch.randn(64, 50304)
    uniform_B = torch.rand(64, dtype=torch.float64)
    on_cpu, _ = draw(logits_BV, 0.7, uniform_B, None)
    torch.use_deterministic_algorithms(True)
    try:
        found = [draw(logits_BV.cuda(), 0.7, uniform_B.cuda(), None) for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    for token_B, logp_B in found[1:]:
        assert torch.equal(token_B, found[0][0]) and torch.equal(logp_B, found[0][1])
    assert (found[0][0].cpu() == on_cpu).float().mean() > 0.95


@pytest.mark.gpu
def test_a_graph_outlives_new_weights_and_chunks_on_a_gpu() -> None:
    made = generator(models("llama"), "auto", 40, "cuda")
    assert isinstance(made._writer, StaticWriter)
    plain = generator(models("llama"), "transformers", 40, "cuda")
    for version in range(3):
        feed = Changing(models("llama"))
        wanted = replace(chunk(40, 2), round=version)
        assert_same(made.generate(feed, wanted), plain.generate(Changing(models("llama")), wanted))
    assert any(graph is not None for graph in made._writer._replays._graphs.values())
