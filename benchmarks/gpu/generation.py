"""Section 3: tokens a second of every decode loop, on prompts and lengths of TL;DR."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from statistics import fmean, median
from typing import Any

import torch

from benchmarks.gpu import models
from benchmarks.gpu.batches import TEMPERATURE
from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.speed.clock import seconds_of
from benchmarks.speed.transformers_loop import generate_chunk
from rlhf_lab.models.batching import collate, to_device
from rlhf_lab.models.forward import response_output
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.types.data import Weights
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk
from rlhf_lab.types.samples import Group

GENERATE, PLAIN, LEAN, GRAPH = "transformers.generate", "plain", "lean", "lean, graph"
# Loops of the generator, by what its options say: a new one is a line here.
LOOPS = {
    PLAIN: {"decode": Decode.transformers},
    LEAN: {"decode": Decode.lean},
    GRAPH: {"decode": Decode.static},
}
# Milliseconds a step and tokens a second on an H200, by arithmetic.
EXPECTED = {
    "pythia_410m": {GENERATE: "8k", PLAIN: "18k", LEAN: "19k", GRAPH: "60-70k"},
    "pythia_1b": {GENERATE: "11-16k", PLAIN: "21-32k", LEAN: "26-32k", GRAPH: "64k"},
    "llama3.2_1b": {GENERATE: "10-14k", PLAIN: "18-25k", LEAN: "18-23k", GRAPH: "58k"},
}
LEAST = {LEAN: (GENERATE, 1.5), GRAPH: (LEAN, 2.5)}
# Mean difference of log-probs to those that training computes, in float32.
GAP = 1e-4
# In bfloat16 it grows with depth and vocabulary: that of transformers' own loop is the measure.
LEAST_GAP, MOST_OF_PLAIN = 1e-2, 1.5
NEW_TOKENS, TRIALS = 53, 2


def measure(setting: Setting) -> Iterator[Finding]:
    for name, config in configs(setting).items():
        dtype = torch.bfloat16 if setting.is_cuda else torch.float32
        model = models.make(config, setting.device, dtype)
        yield from of_model(name, model, setting)


def configs(setting: Setting) -> dict[str, Any]:
    table = models.TINY if setting.is_small else models.SIZED
    return {name: make() for name, make in table.items()}


def of_model(name: str, model: Any, setting: Setting) -> Iterator[Finding]:
    """All loops of a model, and what they must reach of each other."""
    chunk = chunk_for(model, setting)
    rows = len(chunk.prompts) * chunk.group_size
    new = NEW_TOKENS if not setting.is_small else 12
    rates: dict[str, float] = {}
    gaps: dict[str, float] = {}
    loops: dict[str, Callable[[int], Any]] = {
        GENERATE: functools.partial(by_transformers, model, chunk)
    }
    for key, options in LOOPS.items():
        loops[key] = functools.partial(by_loop, model, chunk, options)
    for key, write in loops.items():
        whole, first = (
            median(seconds_of(functools.partial(write, count), TRIALS, setting.device))
            for count in (new, 1)
        )
        rates[key] = rows * new / whole
        expected = EXPECTED.get(name, {}).get(key, "")
        yield info(f"{name}, {key}", rates[key], "tokens/s", expected)
        yield info(f"{name}, {key}: a step", 1e3 * (whole - first) / (new - 1), "ms")
        if key in LOOPS:
            gaps[key] = gap(model, write(new))
            yield judged_gap(f"{name}, {key}: log-probs", gaps[key], gaps[PLAIN], model.dtype)
    yield from ratios(name, rates, setting)


def ratios(name: str, rates: dict[str, float], setting: Setting) -> Iterator[Finding]:
    for key, (base, least) in LEAST.items():
        if key not in rates:
            continue
        ratio = rates[key] / rates[base]
        title, expected = f"{name}, {key} over {base}", f"at least {least:g} on a GPU"
        if setting.is_cuda and not setting.is_small:
            yield judged(title, ratio, ratio >= least, "times", expected)
        else:
            yield info(title, ratio, "times", expected)


def chunk_for(model: Any, setting: Setting) -> Chunk:
    """64 prompts of 100 to 512 tokens, two samples each; few and short ones where small."""
    size = model.config.vocab_size
    if setting.is_small:
        return models.load(size, 8, 2, 10, 40)
    return models.load(size, 64, 2, 100, 512)


def by_loop(model: Any, chunk: Chunk, options: dict[str, Any], count: int) -> tuple[Group, ...]:
    """Write with a generator of these options."""
    generator = generator_of(model, tuple(options.items()), count)
    return generator.generate(weights_of(model), chunk)


@functools.lru_cache(maxsize=8)
def generator_of(model: Any, options: tuple[tuple[str, Any], ...], count: int) -> HFGenerator:
    """A generator over the model itself, kept between the trials."""
    sampling = HFSampling(
        **{"temperature": TEMPERATURE, "device": model.device.type, **dict(options)}
    )
    key = functools.partial(uniforms, 7)
    return HFGenerator(model, models.Tokens(), sampling, count, key)


@functools.lru_cache(maxsize=1)
def weights_of(model: Any) -> Weights:
    return Weights(0, dict(model.named_parameters()))


def by_transformers(model: Any, chunk: Chunk, count: int) -> int:
    """The same by `model.generate`, which may not end early either."""

    class Ends(models.Tokens):
        eos_token_id = model.config.vocab_size - 1

    sizes = {"temperature": TEMPERATURE, "min_new_tokens": count, "max_new_tokens": count}
    return generate_chunk(model, Ends(), chunk, 0, **sizes)


def gap(model: Any, groups: Any) -> float:
    """How far the log-probs of samples are from those of a forward pass: mean, in nats."""
    batch = to_device(collate(groups[:8], pad_id=0), model.device)
    with torch.inference_mode():
        logp_BT = response_output(model, batch, TEMPERATURE).logp_BT
    mask_BT = batch.mask_BT > 0
    return fmean((logp_BT - batch.behavior_logp_BT)[mask_BT].abs().tolist())


def judged_gap(title: str, far: float, plain: float, dtype: torch.dtype) -> Finding:
    """plain: of transformers' own loop, which is the first."""
    limit = GAP if dtype is torch.float32 else MOST_OF_PLAIN * max(plain, LEAST_GAP)
    return judged(title, far, far <= limit, "nats, mean", f"at most {limit:.2g}")
