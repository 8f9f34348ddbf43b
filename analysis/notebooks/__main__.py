"""python -m rlhf_lab_analysis.notebooks: write every notebook from its script."""

from __future__ import annotations

from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.notebooks.pairing import scripts, write

if __name__ == "__main__":
    for made in map(write, scripts()):
        Console(quiet=False).print(f"wrote {made}")
