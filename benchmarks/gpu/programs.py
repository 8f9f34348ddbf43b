"""Runs of `rlhf-lab` in processes, several at a time."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.gpu.findings import Setting
from benchmarks.speed.program import command
from rlhf_lab.runs.folder import manifest_path
from rlhf_lab.runs.manifest import read_manifest

# Hydra reads commas in a value as a list of values.
NOT_IN_NAMES = re.compile(r"[^\w.]+")


def training(folder: Path, options: Sequence[str], setting: Setting) -> list[str]:
    """The command that trains in a folder."""
    return command(
        *("train", f"output.cache={setting.scratch}/cache", "output.quiet=true"),
        *(f"engine.device={setting.device}", f"generator.device={setting.device}"),
        *(*options, f"output.dir={folder}"),
    )


def train(folder: Path, options: Sequence[str], setting: Setting) -> Path:
    """Train in a folder, which is returned. Raises RuntimeError with the last lines of a run that
    fails."""
    words = training(folder, options, setting)
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        lines = [f"{' '.join(words)}: exit code {done.returncode}"]
        lines += (done.stdout + done.stderr).strip().splitlines()[-30:]
        raise RuntimeError("\n".join(lines))
    return folder


def train_all(
    folder: Path, runs: Mapping[str, Sequence[str]], setting: Setting, at_once: int
) -> dict[str, Path]:
    """Train all runs, several at once; their folders by name."""
    with ThreadPoolExecutor(at_once) as pool:
        jobs = {
            name: pool.submit(train, folder / NOT_IN_NAMES.sub("-", name), options, setting)
            for name, options in runs.items()
        }
        return {name: job.result() for name, job in jobs.items()}


def digest(folder: Path) -> str:
    """The digest of a run's last weights."""
    return str(read_manifest(manifest_path(folder))["weights_digest"])
