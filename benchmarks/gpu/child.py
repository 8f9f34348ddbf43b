"""One section in a process of its own: python -m benchmarks.gpu.child NUMBER ..."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import Finding, Setting
from benchmarks.gpu.sections import chosen


def facts(device: str) -> dict[str, Any]:
    """The machine and the versions that every number depends on."""
    import torch
    import transformers

    found = {
        "day": datetime.now(UTC).date().isoformat(),
        "device": device,
        "name": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cores": len(os.sched_getaffinity(0)),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "name": torch.cuda.get_device_name(0),
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "cuda": torch.version.cuda,
            "driver": driver(),
        }
    return found


def driver() -> str:
    """The version of NVIDIA's driver, "" if nvidia-smi is not there."""
    if shutil.which("nvidia-smi") is None:
        return ""
    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(words, capture_output=True, text=True)
    return (done.stdout.splitlines() or [""])[0].strip()


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Append a line of JSON for each finding to a file, as it is found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("section")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--results", type=Path, required=True)
    given = parser.parse_args(arguments)
    (section,) = chosen(given.section)
    append(given.results, {"section": section.number, "facts": facts(given.device)})
    if given.device == "cpu":
        import torch

        torch.set_num_threads(1)  # of models so small, more threads only wait for each other
    setting = Setting(given.device, given.small, given.scratch)
    findings: Sequence[Finding] = importlib.import_module(section.module).measure(setting)
    for finding in findings:
        append(given.results, {"section": section.number, **asdict(finding)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
