"""Section 4: seconds of an update, the share of the device's peak, and memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.speed.clock import seconds_of
from benchmarks.speed.device_limits import Limits, measure_limits
from benchmarks.speed.random_rounds import (
    SIZED,
    TINY,
    answered,
    engine_of,
    make,
    prompts,
    update_batch,
)
from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.models.weights import num_parameters
from rlhf_lab.training.engines.options import EngineOptions, FSDPOptions, SingleEngineOptions
from rlhf_lab.types.precision import Precision

BF16, FP32 = Precision.bfloat16, Precision.float32
SINGLE, MIXED, FSDP = "single, float32", "single, bfloat16", "fsdp, bfloat16"
TOKENS = 16384
# Engines and their options, by what the variant is called: a new one is a line here.
VARIANTS: dict[str, EngineOptions] = {
    SINGLE: SingleEngineOptions(dtype=FP32),
    MIXED: SingleEngineOptions(dtype=BF16),
    FSDP: FSDPOptions(dtype=BF16),
}
SWEEP: dict[str, dict[str, Any]] = {
    "prompts not shared": {"share_prompts": False},
    "micro_tokens=4096": {"micro_tokens": 4096},
    "micro_tokens=65536": {"micro_tokens": 65536},
    "gradient_checkpointing": {"gradient_checkpointing": True},
    "logit_tokens=0": {"logit_tokens": 0},
}
EXPECTED = {
    "pythia_410m": {SINGLE: "1.3-1.6", MIXED: "0.25-0.35", FSDP: "0.23-0.3"},
    "pythia_1b": {SINGLE: "3.3-3.8", MIXED: "0.55-0.75", FSDP: "0.5-0.65"},
}
LEAST_SPEED_UP, MOST_MEMORY, TRIALS = 4.0, 1.2, 2
# Policy, its gradient, two moments and the frozen reference in float32.
STATE_BYTES = 20


@dataclass(frozen=True)
class Measured:
    """products: see `products_of`; each prompt counts once for its samples."""

    seconds: float
    peak_bytes: int
    products: int
    parameters: int


def measure(setting: Setting) -> Iterator[Finding]:
    half = None if setting.is_small else measure_limits(setting.device, torch.bfloat16)
    names = ["GPTNeoX"] if setting.is_small else list(EXPECTED)
    for name in names:
        seconds = {}
        for label, options in VARIANTS.items():
            found = one(name, options, {}, setting)
            seconds[label] = found.seconds
            yield from of_variant(name, label, found, half)
            if setting.is_cuda:
                yield memory(name, label, found, options.dtype)
        ratio, expected = seconds[SINGLE] / seconds[FSDP], f"at least {LEAST_SPEED_UP:g} on a GPU"
        yield setting.reached(f"{name}: bfloat16 over float32", ratio, LEAST_SPEED_UP, expected)
    for label, given in SWEEP.items():
        found = one(names[0], VARIANTS[FSDP], given, setting)
        yield from of_variant(names[0], f"{FSDP}, {label}", found, half)


def of_variant(name: str, label: str, found: Measured, limits: Limits | None) -> Iterator[Finding]:
    expected = EXPECTED.get(name, {}).get(label, "")
    yield info(f"{name}, {label}: an update", found.seconds, "s", expected)
    if limits is not None:
        # Two operations forward and four backward for each product.
        share = 6 * found.products / found.seconds / limits.flops
        yield info(f"{name}, {label}: of the bf16 peak", 100 * share, "%", "27-40 in bfloat16")


def memory(name: str, label: str, found: Measured, dtype: Precision) -> Finding:
    """The peak against 20 bytes a parameter and what activations take."""
    gib = found.peak_bytes / 2**30
    config = (TINY | SIZED)[name]()
    # About 34 numbers of two bytes per layer, token and hidden dimension (arXiv:2205.05198).
    per_token = 17 * (2 if dtype is BF16 else 4) * config.hidden_size * config.num_hidden_layers
    most = STATE_BYTES * found.parameters + 2 * found.parameters + per_token * TOKENS
    title = f"{name}, {label}: peak memory"
    expected = f"at most {MOST_MEMORY:g} x {most / 2**30:.1f}"
    return judged(title, gib, found.peak_bytes <= MOST_MEMORY * most, "GiB", expected)


def one(name: str, options: EngineOptions, given: dict[str, Any], setting: Setting) -> Measured:
    """Updates of a fresh engine, timed after one that is not counted."""
    sizes = {"device": setting.device, "micro_rows": 256, "micro_tokens": TOKENS}
    # Counts anew for every engine, which must have gone by then.
    gc.collect()
    if setting.is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    config = (TINY | SIZED)[name]()
    model = make(config, setting.device)
    parameters = num_parameters(model)
    engine = engine_of(model, replace(options, **{**sizes, **given}))
    algo: Any = classes("algo")["online_dpo"]()
    shape, longest = ((8, 2, 10, 40), 12) if setting.is_small else ((64, 2, 100, 512), 53)
    vocab = config.vocab_size
    groups = answered(prompts(vocab, *shape), vocab, longest, longest)
    batch = update_batch(engine, algo, groups)
    seconds = seconds_of(
        lambda: engine.update(batch, algo, NoCorrection(), 1e-6), TRIALS, setting.device
    )
    peak = torch.cuda.max_memory_allocated() if setting.is_cuda else 0
    prompt_tokens = sum(len(g.prompt.tokens) for g in groups)
    answer_tokens = sum(len(s.tokens) for g in groups for s in g.samples)
    products = products_of(model, prompt_tokens, answer_tokens)
    return Measured(median(seconds), peak, products, parameters)


def products_of(model: Any, prompt_tokens: int, answer_tokens: int) -> int:
    """Weights that tokens are multiplied by in a forward pass, summed over tokens: those of the
    body for every token, of the head for answers, of the embedding for none."""
    head, table = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    body: int = num_parameters(model) - table.numel() - (0 if head is table else head.numel())
    in_head: int = head.numel()
    return body * (prompt_tokens + answer_tokens) + in_head * answer_tokens
