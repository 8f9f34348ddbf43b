"""One section in a process: python -m benchmarks.gpu.child SECTION RESULTS SETTING."""

from __future__ import annotations

import importlib
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import Finding, Setting
from benchmarks.gpu.sections import chosen
from benchmarks.gpu.supervise import append
from rlhf_lab.runs.provenance import usable_cores

DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


def facts(device: str) -> dict[str, Any]:
    """The machine and the versions that every number depends on."""
    import torch
    import transformers

    found = {
        "day": datetime.now(UTC).date().isoformat(),
        "device": device,
        "system": platform.platform(),
        "name": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cores": usable_cores(),
    }
    if device == "cuda":
        memory = torch.cuda.get_device_properties(0).total_memory
        driver = ""
        if shutil.which(DRIVER[0]):
            driver = subprocess.run(DRIVER, capture_output=True, text=True).stdout
        found |= {
            "name": torch.cuda.get_device_name(0),
            "memory_gib": round(memory / 2**30, 1),
            "cuda": torch.version.cuda,
            "driver": driver.partition("\n")[0].strip(),
        }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Append a line of JSON for each finding to a file, as it is found. arguments: the section, the
    file, and the setting as JSON."""
    name, path, given = sys.argv[1:] if arguments is None else arguments
    (section,), results, setting = chosen(name), Path(path), Setting(**json.loads(given))
    append(results, section, {"facts": facts(setting.device)})
    if not setting.is_cuda:
        import torch

        torch.set_num_threads(1)  # of models so small, more threads only wait for each other
    module = importlib.import_module(f"benchmarks.gpu.{section.name}")
    findings: Iterable[Finding] = module.measure(setting)
    for finding in findings:
        append(results, section, asdict(finding))
    return 0


if __name__ == "__main__":
    sys.exit(main())
