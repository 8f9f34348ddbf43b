"""Runs found on disk: state, rounds, last row and last evaluation of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import EVALS, MANIFEST, METRICS, evals, metrics
from rlhf_lab.runs.manifest import read_manifest, state_in
from rlhf_lab.runs.reading import Unreadable


@dataclass(frozen=True)
class RunSummary:
    """A run as its files show it.

    state: running, finished, failed, interrupted, stopped (by a signal, to be resumed), paused
    (checkpoint.pause_round, to be resumed), died ("running" in the manifest, but its process has
    ended) or unreadable. manifest, last and last_eval are empty where nothing could be read;
    problem is the reason.
    """

    name: str
    folder: Path
    state: str
    manifest: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)
    last_eval: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def run_folders(root: Path) -> list[Path]:
    """Every folder with a manifest, root or below it, by name; hidden folders are left out."""
    found: list[Path] = []
    for path, folders, files in os.walk(root):
        if MANIFEST in files:
            found.append(Path(path))
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found, key=str)


def list_runs(root: Path, prefix: str = "") -> list[RunSummary]:
    """Every run in root or in a folder below it, by name. prefix: of the names."""
    return [
        summary(folder, os.path.join(prefix, folder.relative_to(root)))
        for folder in run_folders(root)
    ]


def summary(folder: Path, name: str) -> RunSummary:
    """The summary of a folder with a manifest; never raises on damaged files."""
    try:
        manifest = read_manifest(folder / MANIFEST)
    except Unreadable as error:
        return RunSummary(name, folder, "unreadable", problem=f"{MANIFEST} is damaged: {error}")
    state = state_in(manifest)
    try:
        rounds, evaluations = metrics(folder), evals(folder)
    except Unreadable as error:
        return RunSummary(name, folder, state, manifest, problem=str(error))
    cut = " and ".join(n for n, rows in ((METRICS, rounds), (EVALS, evaluations)) if rows.is_cut)
    return RunSummary(
        name,
        folder,
        state,
        manifest,
        rounds=len(rounds),
        last=rounds[-1] if rounds else {},
        last_eval=evaluations[-1] if evaluations else {},
        problem=f"the last line of {cut} was cut" if cut else "",
    )
