"""Runs found on disk: state, rounds, last row and last evaluation of each; and what to type next,
after a run or a sweep.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import (
    EVALS,
    MANIFEST,
    METRICS,
    POLICY,
    TIMELINE,
    evals,
    manifest_path,
    metrics,
)
from rlhf_lab.runs.manifest import read_manifest, state_in
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.runs.verification import changed_files, contradictions
from rlhf_lab.runs.walk import is_run, walk


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


def list_runs(root: Path, prefix: str = "") -> list[RunSummary]:
    """Every run in root or in a folder below it, by name; a folder that cannot be read is listed as
    an unreadable run. prefix: of the names."""

    def name(folder: Path) -> str:
        return os.path.join(prefix, os.path.relpath(folder, root))

    problems: list[Unreadable] = []
    found = [summary(one, name(one)) for one, files in walk(root, problems) if is_run(files)]
    found += [
        RunSummary(name(one.path), one.path, "unreadable", problem=f"{one.path}: {one.reason}")
        for one in problems
    ]
    return sorted(found, key=lambda run: str(run.folder))


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
    problems = [f"the last line of {cut} was cut"] if cut else []
    problems += changed_files(folder, manifest)
    problems += contradictions(rounds, folder / METRICS)
    problems += contradictions(evaluations, folder / EVALS)
    return RunSummary(
        name,
        folder,
        state,
        manifest,
        rounds=len(rounds),
        last=rounds[-1] if rounds else {},
        last_eval=evaluations[-1] if evaluations else {},
        problem="; ".join(problems),
    )


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
    sweep = shlex.quote(str(folder))
    return [
        (f"rlhf-lab report {sweep}", "one page about the runs, with verdicts"),
        (f"rlhf-lab compare {sweep}", "tables and figures of two conditions or more"),
        (f"rlhf-lab runs {sweep}", "their table"),
    ]


def print_next(console: Console, found: Sequence[tuple[str, str]]) -> None:
    width = max(len(command) for command, _ in found)
    lines = [f"  {command:<{width}}  # {about}" for command, about in found]
    console.print("\n".join(["Next:", *lines]))
