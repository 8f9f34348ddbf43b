"""Section 1: every path on the device gives what the plain path on a CPU gives.

Each function yields findings by itself, so that the tests that are marked `gpu` call them too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.speed.random_rounds import (
    TEMPERATURE,
    TINY,
    answered,
    engine_of,
    make,
    prompts,
    update_batch,
)
from rlhf_lab.algos.corrections.proximal import NoCorrection
from rlhf_lab.experiment.config.own_parts import classes
from rlhf_lab.models.batching import collate, to_device
from rlhf_lab.models.forward import body, token_rows
from rlhf_lab.models.heads import value_model_like
from rlhf_lab.models.numerical_check import is_splittable
from rlhf_lab.models.right_padded import stores_no_masks
from rlhf_lab.models.shared_prompts import is_packable
from rlhf_lab.rollout.generators.decoders import distance
from rlhf_lab.rollout.generators.lean import lean_decoder
from rlhf_lab.training.engines.options import EngineOptions, SingleEngineOptions
from rlhf_lab.training.engines.policy_with_values import PassKind, PassLayout, PolicyWithValues
from rlhf_lab.types.precision import Precision
from rlhf_lab.types.protocols import Algorithm, Correction
from rlhf_lab.types.samples import Group

VOCAB = 512
# Largest difference to the CPU in float32, as a share of the largest number.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
UPDATE_TOLERANCE = 1e-3
# How a pass over a batch is made: a new path is a line here.
LAYOUTS = {
    "plain": PassLayout(1, False),
    "chunked": PassLayout(4, False),
    "packed": PassLayout(1, True),
    "packed, chunked": PassLayout(4, True),
}
KERNELS = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_efficient_attention": "memory-efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cuDNN",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash of the CPU",
    "aten::_scaled_dot_product_attention_math": "math",
    "flex_attention": "flex",
}


def measure(setting: Setting) -> Iterator[Finding]:
    dtypes = (torch.float32, torch.bfloat16) if setting.is_cuda else (torch.float32,)
    for name in TINY:
        yield from is_known(name, setting.device)
        for dtype in dtypes:
            yield from passes(name, setting.device, dtype)
            yield from lean(name, setting.device, dtype)
        yield from kernels(name, setting.device, dtypes[-1])
    yield from updates(setting.device, every=4 if setting.is_small else 1)


def is_known(name: str, device: str) -> Iterator[Finding]:
    """The model can be packed, and its logits made in chunks."""
    model = make(TINY[name](), device)
    yield judged(f"{name}: packable", packable := is_packable(body(model)), packable)
    yield judged(f"{name}: splittable", splittable := is_splittable(model), splittable)


def groups_of(size: int) -> list[Group]:
    return answered(prompts(VOCAB, 6, size, 5, 40), VOCAB, 3, 17)


def passed(network: PolicyWithValues, layout: PassLayout, device: str) -> dict[str, torch.Tensor]:
    """Log-probs, values, and the gradient of their sum, on the CPU."""
    batch = to_device(collate(groups_of(2), pad_id=0), torch.device(device))
    network.zero_grad(set_to_none=True)
    logp_BT, _, value_BT, *_ = network(token_rows(batch), PassKind.both, layout)
    assert value_BT is not None
    ((logp_BT + value_BT) * batch.mask_BT).sum().backward()
    gradients = [p.grad.flatten() for p in network.parameters() if p.grad is not None]
    parts = {"log-probs": logp_BT, "values": value_BT, "gradients": torch.cat(gradients)}
    return {name: part.detach().float().cpu() for name, part in parts.items()}


def network_of(name: str, device: str, dtype: torch.dtype) -> PolicyWithValues:
    """The same weights on every device: they are drawn on the CPU."""
    model = make(TINY[name](), "cpu").to(dtype)
    values = value_model_like(model, is_shared=False)
    with torch.no_grad():
        for weight in values.score.parameters():
            weight.copy_(torch.linspace(-0.5, 0.5, weight.numel()).view(weight.shape))
    where = torch.device(device)
    maskless_on = where if stores_no_masks(where) else None
    return PolicyWithValues(model, values, TEMPERATURE, True, maskless_on).to(device)


def passes(name: str, device: str, dtype: torch.dtype) -> Iterator[Finding]:
    """Every layout of a pass against the plain one in float32 on the CPU."""
    truth = passed(network_of(name, "cpu", torch.float32), LAYOUTS["plain"], "cpu")
    network = network_of(name, device, dtype)
    kind = str(dtype).removeprefix("torch.")
    for label, layout in LAYOUTS.items():
        found = passed(network, layout, device)
        for part, expected in truth.items():
            far = float((found[part] - expected).abs().max() / expected.abs().max())
            title, limit = f"{name}, {kind}, {label}: {part}", TOLERANCE[dtype]
            yield judged(title, far, far <= limit, "of the largest", f"at most {limit:g}")


def lean(name: str, device: str, dtype: torch.dtype) -> Iterator[Finding]:
    """The lean decode loop against the model."""
    model = make(TINY[name](), device).to(dtype)
    decoder = lean_decoder(model)
    title = f"{name}, {str(dtype).removeprefix('torch.')}: lean loop"
    if decoder is None:
        yield judged(title, "not known", False, expected="known")
    else:
        far = distance(model, decoder)
        yield judged(title, far, far <= 1, "of the tolerance", "at most 1")


def kernels(name: str, device: str, dtype: torch.dtype) -> Iterator[Finding]:
    """Which attention each layout takes. On a GPU the unfused one would be many times slower."""
    network = network_of(name, device, dtype)
    for label in ("plain", "packed"):
        found = kernels_of(partial(passed, network, LAYOUTS[label], device))
        words = ", ".join(sorted(found)) or "none of SDPA"
        title = f"{name}: attention, {label}"
        if device == "cuda":
            yield judged(title, words, "math" not in found, expected="not math")
        else:
            yield info(title, words, expected="on a GPU: not math")


def kernels_of(action: Callable[[], object]) -> set[str]:
    """The attention of PyTorch that an action calls."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        action()
    names = {event.key for event in profiler.key_averages()}
    return {label for key, label in KERNELS.items() if key in names}


def updates(device: str, every: int = 1) -> Iterator[Finding]:
    """One update of every algorithm and every correction, against the same on the CPU. every: of so
    many, one is taken."""
    none = NoCorrection()
    grpo: Any = classes("algo")["grpo"]()
    pairs = [(f"algo={name}", make(), none) for name, make in classes("algo").items()]
    pairs += [(f"correction={name}", grpo, make()) for name, make in classes("correction").items()]
    model = make(TINY["GPTNeoX"](), "cpu")
    for name, algo, correction in pairs[::every]:
        truth, found = (updated(model, algo, correction, where) for where in ("cpu", device))
        far = max(abs(found[key] - truth[key]) / max(1.0, abs(truth[key])) for key in truth)
        title, expected = f"{name}: loss and norm of an update", f"at most {UPDATE_TOLERANCE:g}"
        yield judged(title, far, far <= UPDATE_TOLERANCE, "from the CPU's", expected)


def updated(model: Any, algo: Algorithm, correction: Correction, device: str) -> dict[str, float]:
    """Loss and gradient norm of one update in float32."""
    options: EngineOptions = SingleEngineOptions(
        device=device, micro_rows=4, logit_tokens=16, dtype=Precision.float32
    )
    engine = engine_of(copy.deepcopy(model), options, algo.needs.values)
    batch = update_batch(engine, algo, groups_of(3 if algo.needs.greedy else 2))
    metrics = engine.update(batch, algo, correction, 1e-3).metrics
    return {key: float(metrics[key]) for key in ("loss", "grad_norm")}
