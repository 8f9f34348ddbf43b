"""Compare the speed of rlhf_lab and TRL's trainers on this machine.

python -m benchmarks.speed.against_trl [--out FOLDER] [--quick] [--docs docs/speed.md]

Both sides get the same model folder, prompts, reward, lengths, K, updates and cores; each runs in
its own process, in turns. docs/speed.md lists what is equal and what differs. `make bench` creates
TRL's environment first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.clock import Spread
from benchmarks.speed.inputs import make_model, make_prompts
from benchmarks.speed.program import busy_note, in_turns
from benchmarks.speed.spec import SIZES, Spec, Timed
from benchmarks.speed.timed_runs import ours, python_of, theirs
from rlhf_lab.models.devices import multiplies_bfloat16
from rlhf_lab.runs.provenance import provenance
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import Table, publish, split_at_markers

MODELS = sorted({size.model for size in SIZES})


TRL = "TRL"
COLUMNS = ("setting", "prompts x K", "side", "completions/s", "tokens/s", "seconds", "over TRL")


@dataclass
class Found:
    """Everything that was measured: runs by setting and side. note: on other work of the machine
    when it began."""

    specs: Sequence[Spec]
    runs: dict[str, dict[str, list[Timed]]] = field(default_factory=dict)
    note: str = ""


def specs_of(given: argparse.Namespace) -> list[Spec]:
    """The settings that are measured."""
    own: dict[str, Any] = {"folder": str(given.out.absolute())}
    own |= {"updates": 2} if given.quick else {}
    return [
        replace(size, algorithm=algorithm, **own)
        for size, algorithms in SIZES.items()
        if size.model in given.models and (size.dtype == "float32" or multiplies_bfloat16())
        for algorithm in algorithms
    ]


def timed(
    side: Callable[[Spec, Path], Timed], spec: Spec, name: str, console: Console, repeat: int
) -> Timed:
    """One run of a side, with a line of what it did."""
    folder = f"{spec.name} {name} {repeat}".replace(" ", "-")
    found = side(spec, Path(spec.folder, "runs", folder))
    console.print(
        f"{spec.name}, {name}, repeat {repeat + 1}: {found.completions_per_second:.1f} "
        f"completions/s in {found.seconds:.1f} s"
    )
    return found


def speed_up(own: Sequence[Timed], others: Sequence[Timed]) -> Spread:
    """Completions per second over those of the run of the same repeat."""
    pairs = zip(own, others, strict=True)
    return Spread.of([a.completions_per_second / b.completions_per_second for a, b in pairs])


def table_of(found: Found) -> Table:
    """A row for each setting and side."""
    rows = []
    for spec in found.specs:
        size, sides = f"{spec.groups} x {spec.group_size}", found.runs[spec.name]
        for side, runs in sides.items():
            against = "1" if side == TRL else speed_up(runs, sides[TRL]).text(".2f")
            rates = Spread.of([run.completions_per_second for run in runs]).text(".1f")
            tokens = Spread.of([run.tokens / run.seconds for run in runs]).text()
            seconds = f"{median(run.seconds for run in runs):.2f}"
            rows.append([spec.name, size, side, rates, tokens, seconds, against])
    title = "end to end: medians of the repeats [smallest, largest]; ratios are within a repeat"
    return Table(title, COLUMNS, rows)


def caption(found: Found) -> str:
    """One sentence: on what, how often."""
    facts = provenance()
    host, versions = facts["host"], facts["versions"]
    commit = (facts["git"] or {}).get("commit", "unknown")[:9]
    one, dtypes = found.specs[0], dict.fromkeys(spec.dtype for spec in found.specs)
    counts = (len(runs) for by_side in found.runs.values() for runs in by_side.values())
    repeats = max(counts, default=0)
    return (
        f"{host['cpu']}, cpu, {one.threads} threads, {' and '.join(dtypes)}; up to "
        f"{repeats} repeats in turns, {one.warm_up} update of warm-up before the clock starts; "
        f"torch {versions['torch']}, transformers {versions['transformers']}, commit {commit}. "
        f"{found.note}"
    ).rstrip()


def measure_all(given: argparse.Namespace, console: Console) -> Found:
    """Make the inputs and run everything."""
    sides: dict[str, Callable[[Spec, Path], Timed]] = {
        "rlhf_lab sync": partial(ours, "sync"),
        "rlhf_lab async": partial(ours, "async"),
        TRL: partial(theirs, python_of(given.trl)),
    }
    found = Found(specs_of(given), note=busy_note())
    console.print(found.note)
    make_prompts(found.specs)
    for spec in found.specs:
        make_model(spec, console)
        own = {name: partial(timed, side, spec, name, console) for name, side in sides.items()}
        found.runs[spec.name] = in_turns(own, 1 if given.quick else spec.repeats)
    return found


def report(found: Found, given: argparse.Namespace, console: Console) -> None:
    """Keep what was measured as JSON, print the tables, and write them into the page."""
    path, record = given.out / "bench.json", {**asdict(found), "provenance": provenance()}
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    publish(caption(found), (), [table_of(found)], given.docs, console)
    console.print(f"wrote {path}")


def run(given: argparse.Namespace, console: Console) -> None:
    """Measure, and report; a page that cannot be written is refused first."""
    if given.docs:
        split_at_markers(given.docs)
    report(measure_all(given, console), given, console)


def arguments_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="rlhf_lab against TRL, side by side.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--trl", type=Path, default=Path(".venv-oracle"), help="TRL's environment")
    parser.add_argument("--quick", action="store_true", help="a trial: one repeat of two updates")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--docs", type=Path, help="Markdown page whose marked tables are rewritten")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if something that is needed is missing."""
    given = arguments_of(arguments)
    return exit_code("bench", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
