"""Runs that take no time: they write what real ones would, worth what a function says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhf_lab.runs.jsonl import read_rows, write_rows
from rlhf_lab.sweeps.search.runs import Outcome, SearchRun
from rlhf_lab.types.errors import UserError

ROUNDS = 8
Worth = Callable[[Mapping[str, str], float], float]


class FakeRuns:
    """worth(overrides, share of the run) is the proxy's mean; what it raises makes the run fail.

    rounds_done: rounds that runs did, by name: a resumed run does only those that are left.
    """

    def __init__(self, folder: Path, worth: Worth) -> None:
        self.folder = folder
        self.worth = worth
        self.calls: list[list[str]] = []
        self.rounds_done: Counter[str] = Counter()
        self.seen: dict[str, dict[str, str]] = {}
        self.stop_at = ""

    def __call__(self, runs: Sequence[SearchRun]) -> list[Outcome]:
        self.calls.append([run.name for run in runs])
        return [self._run(run) for run in runs]

    def rounds(self, overrides: Sequence[str]) -> int:
        if "beta=impossible" in overrides:
            raise UserError("beta=impossible: choose another")
        return ROUNDS

    def _run(self, run: SearchRun) -> Outcome:
        given = dict(text.split("=", 1) for text in run.overrides)
        self.seen[run.name] = given
        folder = self.folder / run.name
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps({"state": "paused"}))
        if run.name == self.stop_at:
            self.stop_at = ""
            return Outcome("stopped", "asked to stop")
        until = int(given.get("checkpoint.pause_round", 0)) or ROUNDS
        rows = read_rows(folder / "metrics.jsonl")
        try:
            rows += [self._row(given, number) for number in range(len(rows), until)]
        except ZeroDivisionError as error:
            return Outcome("failed", str(error))
        self.rounds_done[run.name] += until - len(read_rows(folder / "metrics.jsonl"))
        write_rows(folder / "metrics.jsonl", rows)
        self._read(folder, given, until)
        return Outcome("finished")

    def _row(self, given: Mapping[str, str], number: int) -> dict[str, Any]:
        reward = self.worth(given, (number + 1) / ROUNDS)
        return {"step": number, "reward/mean": reward, "seconds/device": 3600.0 * (number + 1)}

    def _read(self, folder: Path, given: Mapping[str, str], until: int) -> None:
        worth = self.worth(given, until / ROUNDS)
        row = {"version": until, "proxy/mean": worth, "timing/seconds": 1.0}
        if (readers := given.get("eval.validate", "none")) != "none":
            path = folder / "validation.jsonl"
            write_rows(path, [*read_rows(path), {"validate": readers, **row}])
        if given.get("eval.snapshots") != "0":
            write_rows(folder / "evals.jsonl", [row | {"gold/win_rate": worth / 2}])


def trials_of(folder: Path) -> list[dict[str, Any]]:
    """The trials of a report."""
    found: list[dict[str, Any]] = json.loads((folder / "search.json").read_text())["trials"]
    return found
