"""Section 0: what the machine could do at most, for the other sections to be measured against."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections.abc import Iterator

import torch

from benchmarks.gpu.findings import Finding, Setting, info
from benchmarks.speed.clock import seconds_of
from benchmarks.speed.device_limits import measure_limits
from rlhf_lab.sweeps.launchers.torchrun import MPS_DAEMON

TRIALS = 5
LAUNCHES = 1000


def measure(setting: Setting) -> Iterator[Finding]:
    yield from arithmetic(setting)
    yield from copies(setting)
    yield from launches(setting)
    data = bytes(2**24 if setting.is_small else 2**28)
    rate = len(data) / min(seconds_of(lambda: hashlib.sha256(data), 2)) / 1e9
    yield info("SHA-256 on one core", rate, "GB/s", "1.2-2")
    if setting.is_cuda:
        done = subprocess.run(["ps", "-eo", "comm"], capture_output=True, text=True)
        yield info("MPS daemon", MPS_DAEMON[0][:15] in done.stdout.split(), expected="False")


def arithmetic(setting: Setting) -> Iterator[Finding]:
    """Matrix products of random data, and copies on the device."""
    expected = {torch.bfloat16: "770-800", torch.float32: "45-55"}
    for dtype in (torch.bfloat16, torch.float32):
        limits = measure_limits(setting.device, dtype, is_small=setting.is_small)
        name = str(dtype).removeprefix("torch.")
        yield info(f"matrix product, {name}", limits.flops / 1e12, "TFLOP/s", expected[dtype])
    yield info("copy on the device", limits.bandwidth / 1e12, "TB/s", "4.3, read and written")


def copies(setting: Setting) -> Iterator[Finding]:
    """Host to device and back, from memory that is pinned and not."""
    if not setting.is_cuda:
        return
    size = 2**30
    there = torch.empty(size, dtype=torch.uint8, device=setting.device)
    for is_pinned, expected in ((True, "25-55"), (False, "5-12")):
        here = torch.zeros(size, dtype=torch.uint8, pin_memory=is_pinned)
        kind = "pinned" if is_pinned else "pageable"
        for name, target, source in (("to", there, here), ("from", here, there)):
            seconds = min(seconds_of(functools.partial(target.copy_, source), 3, setting.device))
            yield info(f"copy {name} the device, {kind}", size / seconds / 1e9, "GB/s", expected)


def launches(setting: Setting) -> Iterator[Finding]:
    """Seconds of an operation on next to nothing, alone and as a part of a graph."""
    one = torch.zeros(32, device=setting.device)

    def many() -> None:
        for _ in range(LAUNCHES):
            one.add_(1)

    seconds = min(seconds_of(many, TRIALS, setting.device)) / LAUNCHES
    yield info("launch of an operation", seconds * 1e6, "us", "5-7")
    if not setting.is_cuda:
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        many()
    replayed = min(seconds_of(graph.replay, TRIALS, setting.device)) / LAUNCHES
    yield info("node of a CUDA graph", replayed * 1e6, "us", "1-2")
