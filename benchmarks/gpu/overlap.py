"""Section 6: asynchronous against synchronous runs whose generator and trainer share a device."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks.gpu.findings import Finding, Setting, info
from benchmarks.gpu.programs import NOT_IN_NAMES, train
from rlhf_lab.runs.folder import METRICS
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.sweeps.launchers.torchrun import MPS_DAEMON, MPS_PIPES

MPS = "async, process, MPS"
PATIENCE = 10.0
BASE = ("eval=none", "run.group_size=2", "tracker.probe_groups=0", "checkpoint=none")
SMALL = ("debug=tiny", "model=nano_s", "model@proxy=nano_s", "run.updates=6")
STAGES = ("sft.steps=20", "labels.pairs=256", "labels.held_out_pairs=64")
# 151 million weights, whose rounds the GPU fills; and 4 million, whose rounds wait for the host.
LARGE: dict[str, Sequence[str]] = {
    "150M": (
        *("model=nano_l", "model.hidden_size=1024", "model.num_layers=12", "model.num_heads=16"),
        *("model.init_std=0.02", "run.updates=16", "run.groups_per_update=256"),
        "engine.micro_rows=512",
    ),
    "nano_l": ("model=nano_l", "run.updates=40", "run.groups_per_update=64"),
}
# A new way to run beside each other is a line here. Expected: of an H200, over sync.
MODES = {
    "sync": ((), "1"),
    "async, thread": (("mode=async", "mode.executor=thread"), "1.0, with a stream 1.1-1.4"),
    "async, process": (("mode=async",), "0.9-1.15"),
    MPS: (("mode=async",), "1.3-1.5"),
}
ONLY_LARGE = ("async, thread", MPS)
LEAST, WARM_UP = 0.9, 2


def measure(setting: Setting) -> Iterator[Finding]:
    sizes = {"nano_s": SMALL} if setting.is_small else LARGE
    for name, size in sizes.items():
        yield from of_size(name, (*size, *(() if setting.is_small else STAGES)), setting)


def of_size(size: str, options: Sequence[str], setting: Setting) -> Iterator[Finding]:
    """Every mode with a model of a size."""
    folder = Path(setting.scratch, "overlap", size)
    seconds = {}
    for name, (of_mode, expected) in MODES.items():
        if setting.is_small and name in ONLY_LARGE:
            continue
        if name == MPS and shutil.which(MPS_DAEMON[0]) is None:
            yield info(f"{size}, {name}", "not measured", expected=f"{MPS_DAEMON[0]} on the PATH")
            continue
        with mps(Path(setting.scratch)) if name == MPS else nullcontext():
            path = train(folder / NOT_IN_NAMES.sub("-", name), (*options, *BASE, *of_mode), setting)
        rows = read_rows(path / METRICS)
        seconds[name] = rows[-1]["seconds/wall"] - rows[WARM_UP - 1]["seconds/wall"]
        yield info(f"{size}, {name}: {len(rows) - WARM_UP} rounds", seconds[name], "s")
        ratio, expected = seconds["sync"] / seconds[name], f"{expected}; at least {LEAST:g}"
        yield setting.reached(f"{size}, {name}: over sync", ratio, LEAST, expected)


@contextmanager
def mps(scratch: Path) -> Iterator[None]:
    """CUDA's MPS daemon, for runs that start meanwhile: processes on one GPU take no turns."""
    pipes = tempfile.mkdtemp(prefix="mps-", dir=scratch)
    own = {MPS_PIPES: pipes, "CUDA_MPS_LOG_DIRECTORY": pipes}
    os.environ.update(own)
    daemon = subprocess.Popen(MPS_DAEMON, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE)
        for name in own:
            del os.environ[name]
