"""Randomness, the prompt stream, models, sampling and the forward pass."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.models.batching import collate
from rlhf_lab.models.causal_lm import load_policy, save_policy
from rlhf_lab.models.devices import torch_threads
from rlhf_lab.models.forward import response_output
from rlhf_lab.models.options import PretrainedModel, ScratchModel
from rlhf_lab.models.reward_model import load_reward_model, reward_model_from, save_reward_model
from rlhf_lab.models.weights import load_weights, num_parameters
from rlhf_lab.rewards.model import ModelScorer, last_token_scores
from rlhf_lab.rewards.model_options import ModelReward
from rlhf_lab.rollout.feeds import LatestWeights, RecordedWeights, SegmentRecorder
from rlhf_lab.rollout.generators.draw import draw
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import HFSampling
from rlhf_lab.tasks.prompts import PromptStream
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.data import Weights
from rlhf_lab.types.randomness import stable_hash, uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Finish, Group, Prompt, Split

TASK = TldrNano()
TINY = ScratchModel("tiny", hidden_size=32, num_layers=2, num_heads=4)


@functools.cache
def tiny() -> tuple[Any, Any]:
    return load_policy(TINY, TASK.tokenizer(), seed=3)


def stream(seed: int = 1, shuffle: bool = True) -> PromptStream:
    _, tokenizer = tiny()
    rows = [TASK.examples(Split.validation)[index] for index in range(10)]
    return PromptStream(
        rows, lambda row: list(tokenizer(row.prompt)["input_ids"]), seed, 64, shuffle
    )


def generator(temperature: float = 0.7, length: int = 12) -> HFGenerator:
    model, tokenizer = load_policy(TINY, TASK.tokenizer(), seed=9)
    sampling = HFSampling(temperature=temperature)
    return HFGenerator(model, tokenizer, sampling, length, functools.partial(uniforms, 5))


def weights() -> Weights:
    return Weights(4, {k: v.detach().clone() for k, v in tiny()[0].named_parameters()})


def chunk(prompts: list[Prompt], group_size: int = 3) -> Chunk:
    return Chunk(0, 0, tuple(prompts), group_size)


def test_hashes_and_uniforms_are_pinned() -> None:
    assert stable_hash(1, "a") == 2826170632655654961
    assert stable_hash(1, "2") != stable_hash("1", 2)
    assert stable_hash(12, "") != stable_hash(1, "2")


@given(st.integers(0, 2**62), st.integers(0, 10**6), st.integers(0, 64))
def test_uniforms_are_counter_based(seed: int, prompt: int, sample: int) -> None:
    long = uniforms(seed, prompt, sample, 10)
    assert np.array_equal(uniforms(seed, prompt, sample, 4), long[:4])
    assert ((long >= 0) & (long < 1)).all()
    assert not np.array_equal(uniforms(seed, prompt, sample + 1, 10), long)


def test_an_epoch_uses_every_row_once_in_an_order_of_its_own() -> None:
    prompts = stream()
    first = [prompts[i].example.uid for i in range(10)]
    second = [prompts[i].example.uid for i in range(10, 20)]
    assert sorted(first) == sorted(second)
    assert first != second
    assert [prompts[i].id for i in (13, 2)] == [13, 2]
    assert [stream()[i].example.uid for i in range(10)] == first
    assert [stream(seed=2)[i].example.uid for i in range(10)] != first
    straight = stream(shuffle=False)
    assert [straight[i].example.uid for i in range(3)] == [
        f"tldr_nano/validation/{i}" for i in range(3)
    ]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("nano_s", 0.25e6, 0.45e6), ("nano_m", 0.9e6, 1.1e6), ("nano_l", 3.8e6, 4.3e6)],
)
def test_the_nano_sizes(make_config: Any, name: str, low: float, high: float) -> None:
    model, _ = load_policy(make_config(f"model={name}").model, TASK.tokenizer(), seed=1)
    assert low < num_parameters(model) < high


def test_random_weights_depend_on_the_seed_alone() -> None:
    before = torch.random.get_rng_state()
    one, _ = load_policy(TINY, TASK.tokenizer(), seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(77)
    same, _ = load_policy(TINY, TASK.tokenizer(), seed=3)
    other, _ = load_policy(TINY, TASK.tokenizer(), seed=4)
    name = "gpt_neox.layers.0.mlp.dense_h_to_4h.weight"
    assert torch.equal(one.state_dict()[name], same.state_dict()[name])
    assert not torch.equal(one.state_dict()[name], other.state_dict()[name])


def test_a_saved_policy_loads_bit_for_bit(tmp_path: Path) -> None:
    model, tokenizer = tiny()
    save_policy(model, tokenizer, tmp_path)
    loaded, again = load_policy(PretrainedModel("x", str(tmp_path)), None, seed=0)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert again.pad_token_id == tokenizer.pad_token_id
    for (name, mine), (other_name, theirs) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert name == other_name
        assert torch.equal(mine, theirs)


def test_a_rollout_is_a_function_of_weights_chunk_and_seed() -> None:
    prompts = [stream()[i] for i in range(4)]
    one, two = generator(), generator()
    two.generate(
        Weights(0, dict(load_policy(TINY, TASK.tokenizer(), 1)[0].named_parameters())),
        chunk(prompts),
    )
    assert two.generate(weights(), chunk(prompts)) == one.generate(weights(), chunk(prompts))
    elsewhere = one.generate(weights(), chunk([replace(p, id=p.id + 10) for p in prompts]))
    assert elsewhere != one.generate(weights(), chunk(prompts))


def test_new_weights_in_the_middle_of_a_sequence_are_told_token_by_token() -> None:
    many = chunk([stream()[i] for i in range(20)], 6)
    old = weights()
    new = Weights(6, {name: tensor * 1.5 for name, tensor in old.state.items()})
    published = [old]
    feed = LatestWeights(lambda: published[-1], per_token=True)

    class Publishing:
        """New weights arrive while the sixth token is being written."""

        def at(self, step: int) -> Weights:
            if step == 6:
                published.append(new)
            return feed.at(step)

    recorder = SegmentRecorder(Publishing(), lambda: None)
    before = generator(temperature=3.0).generate(old, many)
    mixed = generator(temperature=3.0).generate(recorder, many)
    assert recorder.segments == ((0, 4), (6, 6))
    assert mixed != before
    pairs = [
        (one, two)
        for g, h in zip(mixed, before, strict=True)
        for one, two in zip(g.samples, h.samples, strict=True)
    ]
    assert {len(one.tokens) > 6 for one, _ in pairs} == {True, False}
    for one, two in pairs:
        assert one.tokens[:6] == two.tokens[:6]
        assert one.logps[:6] == two.logps[:6]
        length = len(one.tokens)
        assert one.versions == (() if length <= 6 else (4,) * 6 + (6,) * (length - 6))
        assert (one.version, one.newest_version) == (4, 6 if length > 6 else 4)
    replayed = RecordedWeights(recorder.segments, {4: old, 6: new})
    assert generator(temperature=3.0).generate(replayed, many) == mixed


def test_without_looking_again_the_first_weights_write_it_all() -> None:
    published = [weights()]
    feed = LatestWeights(lambda: published[-1], per_token=False)
    assert feed.at(0).version == 4
    published.append(Weights(5, {}))
    assert feed.at(1).version == 4


def test_behaviour_logps_are_what_the_trainer_finds() -> None:
    prompts = [stream()[i] for i in range(5)]
    groups = generator(temperature=0.9).generate(weights(), chunk(prompts))
    model, tokenizer = tiny()
    batch = collate(groups, tokenizer.pad_token_id)
    with torch.inference_mode():
        found = response_output(model, batch, temperature=0.9)
    assert torch.allclose(found.logp_BT, batch.behavior_logp_BT, atol=1e-5)
    assert bool((found.entropy_BT[batch.mask_BT == 1] > 0).all())
    assert bool((found.logp_BT[batch.mask_BT == 0] == 0).all())


def test_samples_end_at_the_first_end_token_and_say_why() -> None:
    prompts = [stream()[i] for i in range(8)]
    _, tokenizer = tiny()
    groups = generator(temperature=3.0, length=40).generate(weights(), chunk(prompts, 4))
    samples = [sample for group in groups for sample in group.samples]
    assert {s.finish for s in samples} == {Finish.eos, Finish.length}
    for sample in samples:
        assert sample.version == 4
        assert len(sample.logps) == len(sample.tokens)
        assert (tokenizer.eos_token_id in sample.tokens) == (sample.finish is Finish.eos)
        if sample.finish is Finish.eos:
            assert sample.tokens.index(tokenizer.eos_token_id) == len(sample.tokens) - 1
        else:
            assert len(sample.tokens) == 40


def test_draws_follow_the_distribution_at_the_temperature() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    uniform = torch.linspace(0, 1, 10001, dtype=torch.float64)[:-1]
    tokens, logps = draw(logits.expand(10000, 3), 0.5, uniform, torch.zeros(10000) > 0)
    expected = torch.softmax(logits[0] / 0.5, dim=0)
    share = torch.bincount(tokens, minlength=3) / 10000
    assert torch.allclose(share, expected, atol=2e-4)
    assert torch.allclose(logps, expected.log()[tokens], atol=1e-5)


def test_reward_models_read_the_last_token_whatever_the_padding(tmp_path: Path) -> None:
    policy, tokenizer = tiny()
    model = reward_model_from(policy, seed=1)
    rows = [[5, 6, 7], [5, 6, 7, 8, 9], [4]]
    with torch.inference_mode():
        together = last_token_scores(model, rows)
        alone = torch.cat([last_token_scores(model, [row]) for row in rows])
    assert torch.allclose(together, alone, atol=1e-5)
    save_reward_model(model, tokenizer, tmp_path, offset=0.25)
    loaded, again, offset = load_reward_model(str(tmp_path))
    assert offset == 0.25
    assert again.get_vocab() == tokenizer.get_vocab()
    with torch.inference_mode():
        assert torch.equal(last_token_scores(loaded, rows), together)


def test_a_sample_without_the_end_token_gets_the_penalty_instead_of_its_score() -> None:
    policy, _ = tiny()
    groups = generator(temperature=3.0, length=40).generate(
        weights(), chunk([stream()[i] for i in range(8)], 2)
    )

    def encode(group: Group, sample: Any) -> list[int]:
        return [*group.prompt.tokens, *sample.tokens]

    model = reward_model_from(policy, seed=1)
    options = ModelReward(missing_eos=-7.0, micro_rows=3)
    scores = ModelScorer(model, 0.5, options, encode, threads=1).score(groups)
    unfinished = [
        (score == -7.0, sample.finish is Finish.length)
        for group, row in zip(groups, scores, strict=True)
        for sample, score in zip(group.samples, row, strict=True)
    ]
    assert {True, False} == {is_length for _, is_length in unfinished}
    assert all(is_penalty == is_length for is_penalty, is_length in unfinished)
    as_it_is = replace(options, needs_eos=False)
    plain = ModelScorer(model, 0.5, as_it_is, encode, threads=1).score(groups)
    assert all(-7.0 not in row for row in plain)
    pairs = zip(sum(scores, ()), sum(plain, ()), strict=True)
    assert all(score in (-7.0, own) for score, own in pairs)


def test_threads_are_set_and_given_back() -> None:
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_weights_of_another_model_are_refused() -> None:
    model, _ = tiny()
    state = dict(model.named_parameters())
    state.pop("gpt_neox.final_layer_norm.bias")
    with pytest.raises(ValueError, match=r"version 3 are of another model.*final_layer_norm.bias"):
        load_weights(model, Weights(3, state))
