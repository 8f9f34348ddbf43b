"""Weights that generators round: the formats, the mismatch that they make, and that nothing else
of a run sees them."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rlhf_lab.experiment.artifacts.keys import ArtifactKeys
from rlhf_lab.experiment.build.evaluator import build_generator
from rlhf_lab.experiment.run import lifecycle
from rlhf_lab.models.causal_lm import load_policy
from rlhf_lab.models.options import ScratchModel
from rlhf_lab.rollout.feeds import LatestWeights
from rlhf_lab.rollout.generators.hf import (
    HFGenerator,
    WeightRounding,
    by_channel,
    linear_weights,
)
from rlhf_lab.rollout.generators.options import HFSampling, RoundWeights
from rlhf_lab.rollout.generators.pairs import PairsSampling
from rlhf_lab.rollout.generators.vllm.options import VLLMSampling
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.sweeps.job import content_of
from rlhf_lab.tasks.tldr_nano import TldrNano
from rlhf_lab.types.data import Weights
from rlhf_lab.types.errors import StopRequested, UserError
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Example, Prompt
from tests.conftest import Finished, MakeConfig
from tests.support.examples import FACTS
from tests.support.in_memory import memory_of, run_in_memory
from tests.support.survival import outcome

EIGHT_BITS = (RoundWeights.fp8_e4m3, RoundWeights.int8)
# From no rounding to the coarsest, by relative error of a typical weight.
BY_BITS = ("none", "fp16", "bf16", "int8", "fp8_e4m3")
SHORT = ("run.updates=4", "eval=none", "eval.snapshots=0", "sft.steps=4", "reward=task_rule")
INT8 = "generator.round_weights=int8"


def model() -> torch.nn.Module:
    shape = ScratchModel("tiny", hidden_size=32, num_layers=2, num_heads=4)
    made: torch.nn.Module = load_policy(shape, TldrNano().tokenizer(), seed=3)[0]
    return made


def weights(of: torch.nn.Module, version: int = 0) -> Weights:
    return Weights(version, {k: v.detach().clone() for k, v in of.named_parameters()})


def test_int8_has_127_steps_each_way_of_a_rows_largest_magnitude() -> None:
    exact = torch.tensor([[127.0, 1.4, -1.6], [-2.54, 0.011, 0.0], [0.0, 0.0, 0.0]])
    found = by_channel(exact, RoundWeights.int8)
    expected = torch.tensor([[127.0, 1.0, -2.0], [-2.54, 0.02, 0.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(found, expected, atol=1e-6)


def test_fp8_has_three_bits_of_mantissa_below_a_rows_largest_magnitude() -> None:
    # Between 256 and 448 the values of e4m3 are 32 apart, between 16 and 32 they are 2 apart.
    exact = torch.tensor([[448.0, 300.0, -17.5], [0.448, 0.300, -0.0175], [0.0, 0.0, 0.0]])
    found = by_channel(exact, RoundWeights.fp8_e4m3)
    expected = torch.tensor([[448.0, 288.0, -18.0], [0.448, 0.288, -0.018], [0.0, 0.0, 0.0]])
    assert torch.allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("to", EIGHT_BITS)
def test_a_row_has_a_scale_of_its_own_and_is_off_by_half_a_step_at_most(to: RoundWeights) -> None:
    torch.manual_seed(1)
    exact = torch.randn(6, 40) * torch.logspace(-30, 3, 6)[:, None]
    found = by_channel(exact, to)
    assert torch.isfinite(found).all() and not torch.equal(found, exact)
    largest = exact.abs().amax(dim=1)
    assert torch.allclose(found.abs().amax(dim=1), largest, rtol=1e-6)
    share = 1 / 254 if to is RoundWeights.int8 else 1 / 28
    assert ((found - exact).abs().amax(dim=1) <= largest * share * (1 + 1e-5)).all()
    assert torch.equal(found[2:3], by_channel(exact[2:3], to))
    assert by_channel(exact.bfloat16(), to).dtype == torch.bfloat16


def test_casts_round_all_tensors_and_eight_bits_the_matrices_of_layers() -> None:
    policy = model()
    exact = weights(policy)
    matrices = linear_weights(policy)
    assert len(matrices) == 8
    assert not any("embed" in name or "norm" in name for name in matrices)
    assert WeightRounding(policy, RoundWeights.none)(exact) is exact
    for to, dtype in ((RoundWeights.bf16, torch.bfloat16), (RoundWeights.fp16, torch.float16)):
        found = WeightRounding(policy, to)(replace(exact, version=7))
        assert found.version == 7
        for name, tensor in found.state.items():
            assert tensor.dtype == torch.float32
            assert torch.equal(tensor, exact.state[name].to(dtype).float())
    for to in EIGHT_BITS:
        found = WeightRounding(policy, to)(exact)
        same = {name for name, t in found.state.items() if torch.equal(t, exact.state[name])}
        assert same == set(exact.state) - matrices


def test_a_model_without_linear_layers_has_no_eight_bits() -> None:
    policy = model()
    base: Any = policy.base_model
    for layer in base.layers:
        layer.attention = layer.mlp = torch.nn.Identity()
    with pytest.raises(UserError, match=r"no torch\.nn\.Linear besides its head; pass generator"):
        WeightRounding(policy, RoundWeights.int8)
    WeightRounding(policy, RoundWeights.bf16)


@pytest.mark.parametrize(("made", "why"), [(PairsSampling, "fixed pairs"), (VLLMSampling, "vLLM")])
def test_generators_that_load_no_weights_refuse_to_round_them(
    made: type[HFSampling], why: str
) -> None:
    with pytest.raises(UserError, match=f"round_weights=int8 with generator=.*{why}.*=none"):
        made(round_weights=RoundWeights.int8)
    assert made().round_weights is RoundWeights.none


def chunk() -> Chunk:
    prompts = tuple(Prompt(n, (5, 6 + n), Example(f"row/{n}", "a", "b")) for n in range(2))
    return Chunk(0, 0, prompts, 2)


def test_log_probs_of_samples_are_those_of_the_rounded_weights() -> None:
    policy, tokenizer = model(), TldrNano().tokenizer()
    exact = weights(policy)
    draws = (6, functools.partial(uniforms, 5))
    rounding = HFGenerator(model(), tokenizer, HFSampling(round_weights=RoundWeights.int8), *draws)
    plainly = HFGenerator(model(), tokenizer, HFSampling(), *draws)
    rounded = WeightRounding(policy, RoundWeights.int8)(exact)
    found = rounding.generate(exact, chunk())
    assert found == plainly.generate(rounded, chunk())
    assert found != plainly.generate(exact, chunk())


def test_weights_that_come_within_a_sample_are_rounded_too() -> None:
    policy, tokenizer = model(), TldrNano().tokenizer()
    other = Weights(1, {name: t * 1.5 for name, t in weights(policy).state.items()})
    rounding = WeightRounding(policy, RoundWeights.int8)

    def sampled(to: RoundWeights, versions: list[Weights]) -> object:
        sampling = HFSampling(temperature=3.0, round_weights=to)
        generator = HFGenerator(model(), tokenizer, sampling, 6, functools.partial(uniforms, 5))
        rest = iter([versions[0], versions[0]])
        feed = LatestWeights(lambda: next(rest, versions[1]), per_token=True)
        return generator.generate(feed, chunk())

    given = [weights(policy), other]
    expected = sampled(RoundWeights.none, [rounding(one) for one in given])
    assert sampled(RoundWeights.int8, given) == expected
    assert "versions=(0, 0, 1" in repr(expected)


def test_mismatch_is_zero_without_rounding_and_grows_with_fewer_bits(finished: Finished) -> None:
    gap = {}
    for name in BY_BITS:
        rows, _ = finished(*SHORT, f"generator.round_weights={name}", "tracker.probe_groups=4")
        gap[name] = [row["gap/mismatch_k3"] for row in rows]
        staleness = [row["gap/staleness_k3"] for row in rows]
        assert staleness == [0.0] * len(rows), "rounding is no staleness"
    assert max(gap["none"]) < 1e-10
    for fewer, more in zip(BY_BITS[1:], BY_BITS, strict=False):
        assert min(gap[fewer]) > 3 * max(gap[more]), (fewer, more)


def test_rounding_changes_the_run(finished: Finished) -> None:
    digests = {finished(*SHORT, f"generator.round_weights={to}")[1] for to in BY_BITS}
    assert len(digests) == len(BY_BITS)


def test_a_resumed_run_rounds_as_an_undisturbed_one(
    make_config: MakeConfig, finished: Finished
) -> None:
    stale = (*SHORT, INT8, "mode=lagged", "mode.max_staleness=2", "run.updates=6")
    config = make_config(*stale, "checkpoint=rounds")
    output = memory_of(config)
    with pytest.raises(StopRequested):
        run_in_memory(config, output, lambda: len(output.rows) > 2)
    assert 0 < output.checkpoints.snapshots[-1].round < 6
    assert run_in_memory(config, output) == finished(*stale)


def test_a_replay_rounds_as_the_run_that_it_repeats(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    free, replay = tmp_path / "free", tmp_path / "replay"
    options = (*SHORT, INT8, "run.updates=8")
    free_mode = ("mode=free", "mode.executor=thread", "mode.weights=latest_per_token")
    config = make_config(*options, *free_mode, f"output.dir={free}")
    lifecycle.train(config, Console(quiet=True), FACTS)
    config = make_config(*options, "mode=recorded", f"mode.schedule={free}", f"output.dir={replay}")
    lifecycle.train(config, Console(quiet=True), FACTS)
    assert outcome(replay) == outcome(free)


def test_checkpoints_and_evaluation_have_exact_weights(make_config: MakeConfig) -> None:
    config = make_config(*SHORT, INT8)
    output = memory_of(config)
    run_in_memory(config, output)
    name, matrix = next(
        (name, t) for name, t in output.versions[-1].state.items() if name.endswith("4h.weight")
    )
    assert not torch.equal(matrix, by_channel(matrix, RoundWeights.int8)), name
    policy, tokenizer = load_policy(config.model, config.task.tokenizer(), seed=1)
    for purpose in ("evaluation", "labels"):
        made = build_generator(config, policy, tokenizer, purpose)
        assert made.settings.sampling.round_weights is RoundWeights.none


def test_stages_are_shared_by_runs_that_round_and_hashes_tell_them_apart(
    config_of: MakeConfig,
) -> None:
    plainly, rounding = config_of(), config_of(INT8)
    assert ArtifactKeys(plainly).labels() == ArtifactKeys(rounding).labels()
    assert content_of(plainly) != content_of(rounding)
    assert content_of(plainly) == content_of(config_of("generator.round_weights=none"))
