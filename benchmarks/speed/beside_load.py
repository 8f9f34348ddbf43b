"""Wall-clock of a training run on a machine that does other work, by OpenMP's spin count.

python -m benchmarks.speed.beside_load [--busy 0 2 4 6] [--spins default 100000]
    [--repeats 3] [--out TABLE.json] [KEY=VALUE ...]

A busy process is an endless loop. Each run is `rlhf-lab train KEY=VALUE ...` with an empty cache,
from its start to its end; its stages have two threads. Within a repeat all settings are timed one
after the other, and each repeat begins with another setting. The fair time is that of a run of the
same repeat without busy processes and with the first setting, times (cores + busy processes) /
cores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

from benchmarks.speed.clock import Spread, rotated
from benchmarks.speed.other_load import busy_cores, note
from benchmarks.speed.program import command, report
from rlhf_lab.runs.provenance import WAITING, usable_cores
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.markdown import Table

RUN = ("task=arithmetic", "model=nano_m", "run.updates=12", "reward=task_rule", "eval=none")
BUSY = (0, 2, 4, 6)
# Values of GOMP_SPINCOUNT; with DEFAULT the package sets its own.
DEFAULT = "default"
SPINS = (DEFAULT, "100000")
WORK = "while True: pass"
# Of a repeat: seconds by busy processes and setting.
Seconds = Mapping[tuple[int, str], float]


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


def run_seconds(spins: str, words: Sequence[str]) -> float:
    """Wall-clock of a whole run. Raises UserError if it fails."""
    environment = {key: value for key, value in os.environ.items() if key not in WAITING}
    if spins != DEFAULT:
        environment["GOMP_SPINCOUNT"] = spins
    with tempfile.TemporaryDirectory() as folder:
        where = [f"output.cache={folder}/cache", f"output.dir={folder}/run", "output.quiet=true"]
        words = command("train", *RUN, *words, *where)
        begin = perf_counter()
        code = subprocess.run(words, env=environment).returncode
        seconds = perf_counter() - begin
    if code:
        raise UserError(f"the run ended with code {code}: correct its options")
    return seconds


def measure(
    busy: Sequence[int], spins: Sequence[str], repeats: int, seconds: Callable[[str], float]
) -> list[Seconds]:
    """Seconds of every run of each repeat, after one that is not counted."""
    seconds(spins[0])
    found: list[Seconds] = []
    for repeat in range(repeats):
        of_repeat = {}
        for number in busy:
            for setting in rotated(spins, repeat):
                with busy_processes(number):
                    of_repeat[number, setting] = seconds(setting)
        found.append(of_repeat)
    return found


def table(found: Sequence[Seconds], cores: int) -> Table:
    """A row for each number of busy processes and setting: seconds, and shares of the fair time."""
    _, setting = next(iter(found[0]))
    seconds, shares = defaultdict(list), defaultdict(list)
    for of_repeat in found:
        for (busy, spins), value in of_repeat.items():
            fair = of_repeat[0, setting] * (cores + busy) / cores
            seconds[busy, spins].append(value)
            shares[busy, spins].append(value / fair)
    rows = [
        [
            str(busy),
            spins,
            Spread.of(values).text(".1f"),
            Spread.of(shares[busy, spins]).text(".2f"),
        ]
        for (busy, spins), values in sorted(seconds.items(), key=lambda item: item[0][0])
    ]
    title = f"a run beside busy processes, {cores} cores: medians [smallest, largest]"
    return Table(title, ["busy processes", "spins", "seconds", "of the fair time"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns 0."""
    parser = argparse.ArgumentParser(description="Time a run beside other work on the machine.")
    parser.add_argument(
        "--busy", type=int, nargs="+", default=BUSY, help="busy processes (0 2 4 6)"
    )
    parser.add_argument("--spins", nargs="+", default=SPINS, help=f"counts, or {DEFAULT}")
    parser.add_argument("--repeats", type=int, default=3, help="of every setting (3)")
    parser.add_argument("--out", type=Path, default=Path("beside_load.json"), help="JSON of rows")
    parser.add_argument("options", nargs="*", help=f"overrides, after {' '.join(RUN)}")
    given = parser.parse_intermixed_args(arguments)
    if 0 not in given.busy:
        raise UserError("--busy without 0: the fair time is that of a run beside nothing")
    console = Console(quiet=False)
    if text := note(busy_cores(), usable_cores()):
        console.print(text)
    runs = measure(
        sorted(given.busy), given.spins, given.repeats, lambda one: run_seconds(one, given.options)
    )
    report(table(runs, usable_cores()), given.out, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
