"""Runs of `rlhf-lab` in processes of their own, several at a time."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import Setting
from benchmarks.speed.program import command
from rlhf_lab.runs.folder import EVALS, METRICS, manifest_path
from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.manifest import read_manifest

# Hydra reads commas in a value as a list of values.
NOT_IN_NAMES = re.compile(r"[^\w.]+")


class RunFailed(RuntimeError):
    """A run ended with an error: its last lines."""


def common(setting: Setting) -> list[str]:
    """Options of every run here."""
    return [
        f"output.cache={setting.scratch}/cache",
        "output.quiet=true",
        f"engine.device={setting.device}",
        f"generator.device={setting.device}",
    ]


def run(words: Sequence[str]) -> None:
    """Run `rlhf-lab WORDS` to its end. Raises RunFailed."""
    done = subprocess.run(command(*words), capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise RunFailed(
            f"rlhf-lab {' '.join(words)}: exit code {done.returncode}\n" + "\n".join(lines[-30:])
        )


def train(folder: Path, options: Sequence[str], setting: Setting) -> Path:
    """Train in a folder, which is returned."""
    run(["train", *common(setting), *options, f"output.dir={folder}"])
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


def rounds(folder: Path) -> Sequence[Mapping[str, Any]]:
    return read_rows(folder / METRICS)


def evaluations(folder: Path) -> Sequence[Mapping[str, Any]]:
    return read_rows(folder / EVALS)


def events(folder: Path) -> list[dict[str, Any]]:
    """The spans of a run's timeline."""
    lines = (folder / "timeline.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
