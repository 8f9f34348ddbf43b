"""Wall-clock of a training run on a machine that does other work, by OpenMP's spin count.

python -m benchmarks.speed.beside_load [--busy 0 2 4 6] [--spins default 100000]
    [--repeats 3] [--out TABLE.json] [KEY=VALUE ...]

A busy process is an endless loop. Each run is `rlhf-lab train KEY=VALUE ...` with an empty cache,
from its start to its end; its stages have two threads. All settings take turns. The fair time is
that of a run of the same repeat without busy processes and with the first setting, times (cores +
busy processes) / cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.speed.clock import Spread
from benchmarks.speed.program import busy_note, in_turns, report, run
from rlhf_lab.runs.provenance import WAITING, usable_cores
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table

RUN = ("task=arithmetic", "model=nano_m", "run.updates=12", "reward=task_rule", "eval=none")
# A value of GOMP_SPINCOUNT, or this: the package sets its own.
DEFAULT = "default"
WORK = "while True: pass"


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """So many processes that use a core each, as far as they get one."""
    started = [subprocess.Popen([sys.executable, "-c", WORK]) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def seconds(busy: int, spins: str, words: Sequence[str], _: int = 0) -> float:
    """Wall-clock of a whole run. Raises UserError if it fails."""
    environment = {key: value for key, value in os.environ.items() if key not in WAITING}
    if spins != DEFAULT:
        environment["GOMP_SPINCOUNT"] = spins
    with tempfile.TemporaryDirectory() as folder, busy_processes(busy):
        where = [f"output.cache={folder}/cache", f"output.dir={folder}/run", "output.quiet=true"]
        begin = perf_counter()
        run("train", *RUN, *words, *where, **environment)
        return perf_counter() - begin


def table(found: Mapping[tuple[int, str], Sequence[float]], cores: int) -> Table:
    """A row for each number of busy processes and setting: seconds, and shares of the fair time."""
    alone = next(own for (busy, _), own in found.items() if not busy)
    rows = []
    for (busy, spins), own in found.items():
        shares = [one * cores / (cores + busy) / base for one, base in zip(own, alone, strict=True)]
        times = (Spread.of(own).text(".1f"), Spread.of(shares).text(".2f"))
        rows.append([str(busy), spins, *times])
    title = f"a run beside busy processes, {cores} cores: medians [smallest, largest]"
    return Table(title, ["busy processes", "spins", "seconds", "of the fair time"], rows)


def measure(given: argparse.Namespace, console: Console) -> None:
    if 0 not in given.busy:
        raise UserError("--busy without 0: the fair time is that of a run beside nothing")
    console.print(busy_note())
    sides = {
        (busy, spins): partial(seconds, busy, spins, given.options)
        for busy in sorted(given.busy)
        for spins in given.spins
    }
    seconds(0, given.spins[0], given.options)  # what is read from disk for the first time
    report(table(in_turns(sides, given.repeats), usable_cores()), given.out, console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if a run fails."""
    parser = argparse.ArgumentParser(description="Time a run beside other work on the machine.")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2, 4, 6], help="busy processes")
    parser.add_argument("--spins", nargs="+", default=[DEFAULT, "100000"], help="or a count")
    parser.add_argument("--repeats", type=int, default=3, help="of every setting (3)")
    parser.add_argument("--out", type=Path, default=Path("beside_load.json"), help="JSON of rows")
    parser.add_argument("options", nargs="*", help=f"overrides, after {' '.join(RUN)}")
    given = parser.parse_intermixed_args(arguments)
    return exit_code("beside_load", lambda: measure(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
