"""Section 6: asynchronous against synchronous runs whose generator and trainer share a device."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlhf_lab_analysis.gpu_check.findings import Finding, Setting, info, judged
from rlhf_lab_analysis.gpu_check.programs import NOT_IN_NAMES, rounds, train

BASE = ("eval=none", "run.group_size=2", "tracker.probe_groups=0", "checkpoint=none")
SMALL = ("debug=tiny", "model=nano_s", "model@proxy=nano_s", "run.updates=6")
LARGE = (
    "model=nano_l",
    "model@proxy=nano_l",
    "sft.steps=20",
    "labels.pairs=256",
    "labels.held_out_pairs=64",
    "run.updates=40",
    "run.groups_per_update=64",
)
# A new way to run beside each other is a line here. Expected: of an H200, over sync.
MODES = {
    "sync": ((), "1"),
    "async, thread": (("mode=async", "mode.executor=thread"), "1.0, with a stream 1.1-1.4"),
    "async, process": (("mode=async",), "0.9-1.15, with MPS 1.3-1.5"),
}
ONLY_LARGE = ("async, thread",)
LEAST, WARM_UP = 0.9, 2


def measure(setting: Setting) -> Iterator[Finding]:
    folder = Path(setting.scratch, "overlap")
    seconds = {}
    for name, (options, expected) in MODES.items():
        if setting.is_small and name in ONLY_LARGE:
            continue
        size = SMALL if setting.is_small else LARGE
        path = train(folder / NOT_IN_NAMES.sub("-", name), (*size, *BASE, *options), setting)
        rows = rounds(path)
        seconds[name] = rows[-1]["seconds/wall"] - rows[WARM_UP - 1]["seconds/wall"]
        yield info(f"{name}: {len(rows) - WARM_UP} rounds", seconds[name], "s")
        ratio = seconds["sync"] / seconds[name]
        title = f"{name}: over sync"
        if setting.is_cuda and not setting.is_small:
            yield judged(title, ratio, ratio >= LEAST, "times", f"{expected}; at least {LEAST:g}")
        else:
            yield info(title, ratio, "times", expected)
