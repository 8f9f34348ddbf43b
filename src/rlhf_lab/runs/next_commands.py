"""What to type after a run or a sweep, with its path."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rlhf_lab.runs.folder import POLICY, TIMELINE, manifest_path
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.trackers.console import Console


def after_run(folder: Path) -> list[tuple[str, str]]:
    """The commands that apply to a run, and what each does."""
    run = shlex.quote(str(folder))
    if read_manifest(manifest_path(folder))["state"] != "finished":
        return [(f"rlhf-lab resume {run}", "continue the run")]
    found = [(f"rlhf-lab report {run}", "one page about the run")]
    if (folder / TIMELINE).is_file():
        found.append((f"rlhf-lab timeline {run}", "who worked and who waited, as a picture"))
    found.append((f"rlhf-lab runs {shlex.quote(str(folder.parent))}", "the table of runs there"))
    if (folder / POLICY).is_dir():
        found.append((f"rlhf-lab export {run}", "the policy as a folder for transformers"))
    return found


def after_sweep(folder: Path) -> list[tuple[str, str]]:
    """The commands that apply to a sweep."""
    sweep = shlex.quote(str(folder))
    return [
        (f"rlhf-lab report {sweep}", "one page about the runs, with verdicts"),
        (f"rlhf-lab compare {sweep}", "tables and figures of two conditions or more"),
        (f"rlhf-lab runs {sweep}", "their table"),
    ]


def print_next(console: Console, found: Sequence[tuple[str, str]]) -> None:
    """Print commands, aligned."""
    width = max(len(command) for command, _ in found)
    lines = [f"  {command:<{width}}  # {about}" for command, about in found]
    console.print("\n".join(["Next:", *lines]))
