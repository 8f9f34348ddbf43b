"""python -m benchmarks.gpu: check a GPU, or this check itself on a CPU.

The sections run one after another, each in a process. OUT gets a file with a line of JSON for every
finding, the same as tables, which can be pasted into an issue, and the log. Where packages are
missing, they come from a folder of wheels. The standard library is all that is imported here.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import page
from benchmarks.gpu.findings import Refused, Setting
from benchmarks.gpu.sections import NAMES, chosen
from benchmarks.gpu.supervise import Plan, rows_of, run_all, say
from benchmarks.gpu.wheels import unpack

HAS_GPU = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)"


def arguments_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check", description="Check one GPU.")
    get = os.environ.get
    parser.add_argument("--sections", default=get("SECTIONS", ""), help=f"as 0,1,bits; of {NAMES}")
    parser.add_argument("--out", type=Path, default=Path(get("OUT") or "runs/gpu-check"))
    parser.add_argument("--wheels", default=get("GPU_CHECK_WHEELS", ""), help="folder of wheels")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--small", action="store_true", help="nano models, as on a CPU")
    parser.add_argument("--docs", type=Path, help="page to write the results into")
    return parser.parse_args(arguments)


def check(given: argparse.Namespace) -> bool:
    """Run the sections and write the page; whether nothing failed."""
    sections, device = chosen(given.sections), given.device
    if device == "auto":
        code = subprocess.run([sys.executable, "-c", HAS_GPU]).returncode
        if code not in (0, 3):
            raise Refused("this Python cannot import torch: use the one that can")
        device = "cpu" if code else "cuda"
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        path = unpack(given.wheels, Path(scratch, "site"))
        setting = Setting(device, given.small or device == "cpu", scratch)
        plan = Plan(sections, setting, given.out, path)
        is_well = run_all(plan)
    counts = Counter(row["verdict"] for row in rows_of(plan.results) if "verdict" in row)
    tables = given.out / "gpu_check.md"
    tables.write_text(page.text_of(rows_of(plan.results)), encoding="utf-8")
    say(f"{dict(counts)}: {plan.results}, and as tables {tables}")
    if given.docs and device == "cpu" and page.is_of_a_gpu(given.docs):
        say(f"{given.docs} holds results of a GPU: those of this CPU are not written into it")
    elif given.docs:
        page.write(plan.results, given.docs)
        say(f"wrote {given.docs}")
    return is_well


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: nothing failed. 1: something did. 2: the check could not be started."""
    given = arguments_of(arguments)
    try:
        return 0 if check(given) else 1
    except Refused as error:
        sys.stderr.write(f"gpu_check: {error}\n")
        return 2


if __name__ == "__main__":
    # A SIGTERM unwinds, so that the section's process and all that it started are ended.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
