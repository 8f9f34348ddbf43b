"""python -m analysis.notebooks: write every notebook from its script."""

from __future__ import annotations

from analysis.notebooks.pairing import scripts, write
from rlhf_lab.runs.trackers.console import Console

if __name__ == "__main__":
    for made in map(write, scripts()):
        Console(quiet=False).print(f"wrote {made}")
