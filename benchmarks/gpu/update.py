"""Section 4: seconds of an update, the share of the device's peak, and memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from benchmarks.gpu import models
from benchmarks.gpu.batches import engine_of, groups_of, update_batch
from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.speed.clock import seconds_of
from benchmarks.speed.device_limits import Limits, measure_limits
from rlhf_lab.algos.corrections.none import NoCorrection
from rlhf_lab.experiment.registry import classes
from rlhf_lab.models.weights import num_parameters
from rlhf_lab.training.engines.options import (
    EngineOptions,
    FSDPOptions,
    Precision,
    SingleEngineOptions,
)

BF16 = Precision.bfloat16
SINGLE, MIXED, FSDP = "single, float32", "single, bfloat16", "fsdp, bfloat16"
TOKENS = 16384
# Engines and their options: a new one is a line here.
VARIANTS: dict[str, tuple[type[EngineOptions], dict[str, Any]]] = {
    SINGLE: (SingleEngineOptions, {"dtype": Precision.float32}),
    MIXED: (SingleEngineOptions, {"dtype": BF16}),
    FSDP: (FSDPOptions, {"dtype": BF16}),
}
SWEEP: dict[str, tuple[type[EngineOptions], dict[str, Any]]] = {
    "prompts not shared": (FSDPOptions, {"dtype": BF16, "share_prompts": False}),
    "micro_tokens=4096": (FSDPOptions, {"dtype": BF16, "micro_tokens": 4096}),
    "micro_tokens=65536": (FSDPOptions, {"dtype": BF16, "micro_tokens": 65536}),
    "gradient_checkpointing": (FSDPOptions, {"dtype": BF16, "gradient_checkpointing": True}),
    "logit_tokens=0": (FSDPOptions, {"dtype": BF16, "logit_tokens": 0}),
}
EXPECTED = {
    ("pythia_410m", SINGLE): "1.3-1.6",
    ("pythia_410m", MIXED): "0.25-0.35",
    ("pythia_410m", FSDP): "0.23-0.3",
    ("pythia_1b", SINGLE): "3.3-3.8",
    ("pythia_1b", MIXED): "0.55-0.75",
    ("pythia_1b", FSDP): "0.5-0.65",
}
LEAST_SPEED_UP, MOST_MEMORY, TRIALS = 4.0, 1.2, 2
# Policy, its gradient, two moments and the frozen reference in float32.
STATE_BYTES = 20


@dataclass(frozen=True)
class Measured:
    """tokens: of prompts and responses, each prompt once for its samples."""

    seconds: float
    peak_bytes: int
    tokens: int
    parameters: int

    def share(self, limits: Limits) -> float:
        """Of the device's peak: 6 operations per parameter and token."""
        return self.tokens / self.seconds / limits.training(self.parameters)


def measure(setting: Setting) -> Iterator[Finding]:
    half = None if setting.is_small else measure_limits(setting.device, torch.bfloat16)
    names = ["GPTNeoX"] if setting.is_small else ["pythia_410m", "pythia_1b"]
    for name in names:
        found = {}
        for label, variant in VARIANTS.items():
            found[label] = one(name, variant, setting)
            yield from of_variant(name, label, found[label], half)
            if setting.is_cuda:
                yield memory(name, label, found[label], variant)
        yield speed_up(name, found, setting)
    for label, variant in SWEEP.items():
        yield from of_variant(
            names[0], f"fsdp, bfloat16, {label}", one(names[0], variant, setting), half
        )


def of_variant(name: str, label: str, found: Measured, limits: Limits | None) -> Iterator[Finding]:
    expected = EXPECTED.get((name, label), "")
    yield info(f"{name}, {label}: an update", found.seconds, "s", expected)
    if limits is None:
        return
    share = 100 * found.share(limits)
    yield info(f"{name}, {label}: of the bf16 peak", share, "%", "27-40 in bfloat16")


def speed_up(name: str, found: dict[str, Measured], setting: Setting) -> Finding:
    ratio = found[SINGLE].seconds / found[FSDP].seconds
    title, expected = f"{name}: bfloat16 over float32", f"at least {LEAST_SPEED_UP:g} on a GPU"
    if setting.is_cuda and not setting.is_small:
        return judged(title, ratio, ratio >= LEAST_SPEED_UP, "times", expected)
    return info(title, ratio, "times", expected)


def memory(name: str, label: str, found: Measured, variant: Any) -> Finding:
    """The peak against 20 bytes a parameter and what activations take."""
    gib = found.peak_bytes / 2**30
    config = (models.TINY | models.SIZED)[name]()
    width = 2 if variant[1].get("dtype") is BF16 else 4
    # About 34 numbers of two bytes per layer, token and hidden dimension (arXiv:2205.05198).
    per_token = 17 * width * config.hidden_size * config.num_hidden_layers
    most = STATE_BYTES * found.parameters + 2 * found.parameters + per_token * TOKENS
    title = f"{name}, {label}: peak memory"
    expected = f"at most {MOST_MEMORY:g} x {most / 2**30:.1f}"
    return judged(title, gib, found.peak_bytes <= MOST_MEMORY * most, "GiB", expected)


def one(
    name: str, variant: tuple[type[EngineOptions], dict[str, Any]], setting: Setting
) -> Measured:
    """Updates of a fresh engine, timed after one that is not counted."""
    kind, given = variant
    config = (models.TINY | models.SIZED)[name]()
    options = kind(**{"device": setting.device, "micro_rows": 256, "micro_tokens": TOKENS, **given})
    # Counts anew for every engine, which must have gone by then.
    gc.collect()
    if setting.is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    model = models.make(config, setting.device)
    parameters = num_parameters(model)
    engine = engine_of(model, options)
    algo: Any = classes("algo")["online_dpo"]()
    sizes = (8, 2, 10, 40) if setting.is_small else (64, 2, 100, 512)
    longest = 12 if setting.is_small else 53
    groups = groups_of(models.load(config.vocab_size, *sizes), config.vocab_size, longest, longest)
    batch = update_batch(engine, algo, groups)
    seconds = seconds_of(
        lambda: engine.update(batch, algo, NoCorrection(), 1e-6), TRIALS, setting.device
    )
    peak = torch.cuda.max_memory_allocated() if setting.is_cuda else 0
    tokens = sum(len(g.prompt.tokens) + sum(len(s.tokens) for s in g.samples) for g in groups)
    return Measured(median(seconds), peak, tokens, parameters)
