"""Section 8: whether training raises the gold win-rate, over seeds that train side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from benchmarks.gpu.findings import Finding, Setting, info, judged
from benchmarks.gpu.programs import train_all
from rlhf_lab.runs.folder import EVALS, METRICS
from rlhf_lab.runs.jsonl import read_rows

SEEDS = 6
LEAST_RISE = 0.15
LARGE = ("model=nano_l", "sft.steps=200", "run.updates=64", "eval.snapshots=1")
SMALL = ("debug=tiny", "model=nano_s", "model@proxy=nano_s")
# Runs that share the device must not each take all cores.
THREADS = ("engine.threads=1", "generator.threads=1")


def measure(setting: Setting) -> Iterator[Finding]:
    count, size = (1, SMALL) if setting.is_small else (SEEDS, LARGE)
    begin = time.monotonic()
    runs = {f"seed {seed}": (*size, *THREADS, f"seed={seed}") for seed in range(1, count + 1)}
    folders = train_all(Path(setting.scratch, "learning"), runs, setting, count)
    yield info(f"{count} runs at once", time.monotonic() - begin, "s", "90-150")
    rises = []
    for name, folder in folders.items():
        rates = [float(row["gold/win_rate"]) for row in read_rows(folder / EVALS)]
        is_finite = all(math.isfinite(row["update/loss"]) for row in read_rows(folder / METRICS))
        rises.append(rates[-1] - rates[0])
        yield judged(f"{name}: losses are finite", is_finite, is_finite)
        yield info(f"{name}: gold win-rate", f"{rates[0]:.3f} to {rates[-1]:.3f}")
    yield info("rise of the gold win-rate, mean", fmean(rises))
    if not setting.is_small:
        risen = sum(rise >= LEAST_RISE for rise in rises)
        expected = f"{count} of {count} by at least {LEAST_RISE:g}"
        yield judged("seeds whose win-rate rises", risen, risen == count, f"of {count}", expected)
