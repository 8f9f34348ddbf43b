"""Run `rlhf-lab` in processes, sides in turns, and report what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TypeVar

from rlhf_lab.runs.provenance import usable_cores
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.markdown import Table

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
# Shares of a core that an idle desktop has anyway.
IDLE_CORES = 0.2


def command(*words: str) -> list[str]:
    """`rlhf-lab WORDS`, by the Python of this process."""
    return [sys.executable, "-m", "rlhf_lab.cli.main", *words]


def run(*words: str, **environment: str) -> None:
    """Run `rlhf-lab WORDS` to its end. Raises UserError if it fails."""
    done = subprocess.run(command(*words), env=environment or None)
    if done.returncode:
        raise UserError(f"the run ended with code {done.returncode}: correct its options")


def sft_model(name: str, steps: int, cache: Path) -> Path:
    """The folder of a model after SFT."""
    run("sft", f"model={name}", f"sft.steps={steps}", f"output.cache={cache}", "output.quiet=true")
    (made,) = (cache / "sft").glob("*/config.json")
    return made.parent


def in_turns(sides: Mapping[K, Callable[[int], T]], repeats: int) -> dict[K, list[T]]:
    """What each side returns, by its name. A side is called with the number of the repeat; another
    one begins each time, so that a slow minute of the machine hits all alike."""
    found: dict[K, list[T]] = {name: [] for name in sides}
    names = list(sides)
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in (*names[first:], *names[:first]):
            found[name].append(sides[name](repeat))
    return found


def busy_note() -> str:
    """A sentence for the results, from the load of the last minute; "" for a machine that is free:
    threads of one side may wait for a core that the other side had to itself."""
    busy = os.getloadavg()[0]
    if busy <= IDLE_CORES:
        return ""
    return (
        f"BUSY: other work held {busy:.1f} of {usable_cores()} cores when this began, so that its "
        "ratios are not to be trusted."
    )


def report(table: Table, path: Path, console: Console) -> None:
    """Print a table, and write its rows as JSON."""
    console.table(table.title, table.columns, table.rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    console.print(f"wrote {path}")
