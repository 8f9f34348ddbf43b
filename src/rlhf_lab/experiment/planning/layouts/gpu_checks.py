"""The prediction for the work of `make gpu-check` beside what a GPU took for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rlhf_lab.experiment.config.layout import Layout
from rlhf_lab.experiment.planning.layouts.choice import Choice, Workload
from rlhf_lab.experiment.planning.layouts.costs import decoding, updating
from rlhf_lab.experiment.planning.layouts.gpus import Gpu, findings_of
from rlhf_lab.experiment.planning.layouts.shapes import PUBLISHED
from rlhf_lab.runs.trackers.console import Console

# 64 prompts of 100 to 512 tokens, evenly, with two responses of 53 tokens each.
WORK = Workload(
    policy=PUBLISHED["pythia-410m"],
    scorers=(),
    value_models=0,
    has_adapters=False,
    reads_reference=False,
    shares_prompts=True,
    prompt=306,
    response=53,
    observed=0,
    longest=565,
    groups=64,
    group_size=2,
    trained_rows=128,
    trained_groups=64,
    updates=1,
    num_rounds=1,
    staleness=0,
    chunk_rows=(128,),
    logit_tokens=1024,
)
MODELS = {
    "pythia_410m": PUBLISHED["pythia-410m"],
    "pythia_1b": PUBLISHED["pythia-1b"],
    "llama3.2_1b": PUBLISHED["llama-3.2-1b"],
}
BASE = Choice(Layout(1, 1, 1, 0), "single", "bfloat16", 16384, False, 1)
FSDP = replace(BASE, engine="fsdp")
UPDATES = {
    "single, float32": replace(BASE, dtype="float32"),
    "single, bfloat16": BASE,
    "fsdp, bfloat16": FSDP,
    "fsdp, bfloat16, micro_tokens=4096": replace(FSDP, micro_tokens=4096),
    "fsdp, bfloat16, micro_tokens=65536": replace(FSDP, micro_tokens=65536),
    "fsdp, bfloat16, gradient_checkpointing": replace(FSDP, checkpointing=True),
}


def compared(path: Path, gpu: Gpu) -> Iterator[tuple[str, float, float]]:
    """Name, predicted and measured seconds of each part that the file has."""
    found = findings_of(path)
    for model, shape in MODELS.items():
        work = replace(WORK, policy=shape)
        for label, choice in UPDATES.items():
            name = f"{model}, {label}: an update"
            if name in found:
                yield name, updating(work, choice, gpu), float(found[name])
        name = f"{model}, lean, graph: a step"
        if name in found:
            _, step = decoding(work, BASE, gpu, work.rows)
            yield name, step, float(found[name]) / 1e3


def show_checked(path: Path, gpu: Gpu, console: Console) -> None:
    """Print predicted beside measured, for the parts that the file has."""
    rows = [
        [name, f"{predicted:.4g} s", f"{took:.4g} s", f"{predicted / took - 1:+.0%}"]
        for name, predicted, took in compared(path, gpu)
    ]
    if rows:
        title = f"{path} on {gpu.name}, predicted from sizes"
        console.table(title, ("part", "predicted", "measured", "error"), rows)
