"""Section 3: tokens a second of every decode loop, on prompts and lengths of TL;DR."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from statistics import fmean, median
from typing import Any

import torch

from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.speed import random_rounds
from benchmarks.speed.clock import seconds_of
from benchmarks.speed.random_rounds import TEMPERATURE
from benchmarks.speed.transformers_loop import generate_chunk
from rlhf_lab.models.batching import collate, to_device
from rlhf_lab.models.forward import response_output
from rlhf_lab.rollout.generators.hf import HFGenerator
from rlhf_lab.rollout.generators.options import Decode, HFSampling
from rlhf_lab.types.data import Weights
from rlhf_lab.types.randomness import uniforms
from rlhf_lab.types.rollouts import Chunk

GENERATE, PLAIN, LEAN, GRAPH = "transformers.generate", "plain", "lean", "lean, graph"
# Loops of the generator: a new one is a line here.
LOOPS = {PLAIN: Decode.transformers, LEAN: Decode.lean, GRAPH: Decode.static}
# Tokens a second on an H200, by arithmetic.
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
TRIALS = 2


def measure(setting: Setting) -> Iterator[Finding]:
    dtype = torch.bfloat16 if setting.is_cuda else torch.float32
    configs = random_rounds.TINY if setting.is_small else random_rounds.SIZED
    for name, config in configs.items():
        yield from of_model(name, random_rounds.make(config(), setting.device, dtype), setting)


def of_model(name: str, model: Any, setting: Setting) -> Iterator[Finding]:
    """All loops of a model, and what they must reach of each other: two samples of each of 64
    prompts of 100 to 512 tokens; of few and short ones where small."""
    sizes, new = ((8, 2, 10, 40), 12) if setting.is_small else ((64, 2, 100, 512), 53)
    chunk = random_rounds.prompts(model.config.vocab_size, *sizes)
    loops: dict[str, Callable[[int], Any]] = {GENERATE: by_transformers(model, chunk)}
    loops |= {key: by_loop(model, chunk, decode) for key, decode in LOOPS.items()}
    rates, gaps = dict[str, float](), dict[str, float]()
    for key, write in loops.items():
        whole, first = (
            median(seconds_of(functools.partial(write, count), TRIALS, setting.device))
            for count in (new, 1)
        )
        rates[key] = len(chunk.prompts) * chunk.group_size * new / whole
        expected = EXPECTED.get(name, {}).get(key, "")
        yield info(f"{name}, {key}", rates[key], "tokens/s", expected)
        yield info(f"{name}, {key}: a step", 1e3 * (whole - first) / (new - 1), "ms")
        if key in LOOPS:
            gaps[key] = gap(model, write(new))
            yield judged_gap(f"{name}, {key}: log-probs", gaps[key], gaps[PLAIN], model.dtype)
    for key, (base, least) in LEAST.items():
        ratio, expected = rates[key] / rates[base], f"at least {least:g} on a GPU"
        yield setting.reached(f"{name}, {key} over {base}", ratio, least, expected)


def by_loop(model: Any, chunk: Chunk, decode: Decode) -> Callable[[int], Any]:
    """Writes so many tokens a sample with a generator over the model itself, which is kept between
    the trials."""
    weights = Weights(0, dict(model.named_parameters()))
    sampling = HFSampling(temperature=TEMPERATURE, device=model.device.type, decode=decode)
    key = functools.partial(uniforms, 7)

    @functools.cache
    def generator(count: int) -> HFGenerator:
        return HFGenerator(model, random_rounds.Tokens(), sampling, count, key)

    return lambda count: generator(count).generate(weights, chunk)


def by_transformers(model: Any, chunk: Chunk) -> Callable[[int], int]:
    """The same by `model.generate`, which may not end early either."""

    class Ends(random_rounds.Tokens):
        eos_token_id = model.config.vocab_size - 1

    def write(count: int) -> int:
        sizes = {"temperature": TEMPERATURE, "min_new_tokens": count, "max_new_tokens": count}
        return generate_chunk(model, Ends(), chunk, **sizes)

    return write


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
