"""Section 7: memory that is left to others, and the message where it runs out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.gpu.programs import train
from rlhf_lab.models.devices import release_unused
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.memory import OutOfMemory, memory_for

OPTIONS = ("debug=tiny", "model=nano_s", "model@proxy=nano_s", "eval=none")
# What vLLM asks for when it starts.
LEAST_FREE = 0.5
KEYS = "engine.micro_rows=32"


def measure(setting: Setting) -> Iterator[Finding]:
    yield from shortage(setting)
    folder = train(Path(setting.scratch, "tenants"), OPTIONS, setting)
    row = read_rows(folder / METRICS)[-1]
    name = "timing/peak_device_bytes" if setting.is_cuda else "timing/peak_resident_bytes"
    yield judged(f"{name} is logged", float(row.get(name, 0)) / 2**30, name in row, "GiB")
    if setting.is_cuda:
        yield from left_over()


def shortage(setting: Setting) -> Iterator[Finding]:
    """The error of an allocation that nothing can hold."""
    try:
        with memory_for("the update", KEYS):
            torch.empty(2**48, dtype=torch.uint8, device=setting.device)
        text = "no error"
    except OutOfMemory as error:
        text = str(error)
    yield judged("out of memory: the message names the key", KEYS in text, KEYS in text)


def left_over() -> Iterator[Finding]:
    """What a stage leaves when its tensors are gone, before and after it is given back."""
    total = torch.cuda.get_device_properties(0).total_memory
    stage = torch.empty(int(0.7 * total), dtype=torch.uint8, device="cuda")
    del stage
    free, _ = torch.cuda.mem_get_info()
    yield info("free after a stage", free / total, "of the device", "about 0.3")
    release_unused()
    free, _ = torch.cuda.mem_get_info()
    share = free / total
    expected = f"at least {LEAST_FREE:g}"
    yield judged("free once it is released", share, share >= LEAST_FREE, "of the device", expected)
