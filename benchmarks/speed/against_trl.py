"""Compare the speed of rlhf_lab and TRL's trainers on this machine, and time the parts of a round.

python -m benchmarks.speed.against_trl [--out FOLDER] [--repeats 5] [--quick]
      [--docs docs/speed.md]

Both sides get the same model folder, prompts, reward, lengths, K, updates and cores; each runs in
its own process, in turns. docs/speed.md lists what is equal and what differs. `make bench` creates
TRL's environment first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.inputs import (
    MODELS,
    Size,
    make_model,
    make_prompts,
    sizes_on,
    specs_of,
)
from benchmarks.speed.other_load import busy_note
from benchmarks.speed.program import in_turns
from benchmarks.speed.result_tables import TRL, part_table, run_table, training_table
from benchmarks.speed.spec import ALGORITHMS, Spec, Timed
from benchmarks.speed.timed_runs import ours, python_of, run_module, theirs
from rlhf_lab.runs.provenance import provenance
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.command import exit_code
from rlhf_lab_analysis.markdown import publish, split_at_markers

# A spec and a new folder for whatever the run leaves.
Side = Callable[[Spec, Path], Timed]


@dataclass
class Found:
    """Everything that was measured: runs by setting and side, parts by model. note: on other work
    of the machine when it began."""

    specs: Sequence[Spec]
    runs: dict[str, dict[str, list[Timed]]] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    note: str = ""


def timed(side: Side, spec: Spec, name: str, folder: Path, console: Console, repeat: int) -> Timed:
    """One run of a side, with a line of what it did."""
    found = side(spec, folder / f"{spec.name} {name} {repeat}".replace(" ", "-"))
    console.print(
        f"{spec.name}, {name}, repeat {repeat + 1}: {found.completions_per_second:.1f} "
        f"completions/s in {found.seconds:.1f} s"
    )
    return found


def parts_of(spec: Spec, size: Size, vllm: Path | None, folder: Path) -> dict[str, Any]:
    """The parts of a round of our side, and vLLM's generation where there is an environment."""
    found = run_module(spec, Path(sys.executable), "benchmarks.speed.round_parts", folder / "parts")
    # Its kernels for CPUs do not take the width of the nano models' heads.
    if vllm is not None and size.model == "smollm2_135m":
        run = run_module(
            spec, vllm / "bin" / "python", "benchmarks.speed.vllm_side", folder / "vllm"
        )
        amounts = {"tokens": run["tokens"]}
        part = {"name": "generation, vLLM", "seconds": run["seconds"], "amounts": amounts}
        found["parts"].insert(2, part)
    return found


def caption(found: Found) -> str:
    """One sentence: on what, how often."""
    facts = provenance()
    host, versions = facts["host"], facts["versions"]
    commit = (facts["git"] or {}).get("commit", "unknown")[:9]
    one, dtypes = found.specs[0], dict.fromkeys(spec.dtype for spec in found.specs)
    counts = (len(runs) for by_side in found.runs.values() for runs in by_side.values())
    repeats = max(counts, default=0)
    return (
        f"{host['cpu']}, {one.device}, {one.threads} threads, {' and '.join(dtypes)}; up to "
        f"{repeats} repeats in turns, {one.warm_up} update of warm-up before the clock starts; "
        f"torch {versions['torch']}, transformers {versions['transformers']}, commit {commit}. "
        f"{found.note}"
    ).rstrip()


def measure_all(given: argparse.Namespace, console: Console) -> Found:
    """Make the inputs and run everything."""
    trl, out = python_of(given.trl), given.out.absolute()
    sides: dict[str, Side] = {
        "rlhf_lab sync": partial(ours, "sync"),
        "rlhf_lab async": partial(ours, "async"),
        TRL: partial(theirs, trl),
    }
    sizes = [size for size in sizes_on(given.device) if size.model in (given.models or MODELS)]
    whole = [
        [spec for spec in specs if spec.algorithm in given.algorithms]
        for specs in (specs_of(s, out, given.device, given.threads, given.quick) for s in sizes)
    ]
    found = Found([spec for own in whole for spec in own], note=busy_note())
    console.print(found.note)
    if not found.specs:
        raise UserError(
            f"--algorithms={' '.join(given.algorithms)}: none of the models is measured with "
            "these; pass grpo"
        )
    make_prompts(found.specs)
    for size, own in zip(sizes, whole, strict=True):
        if not own:
            continue
        make_model(size.model, Path(own[0].model), console)
        found.parts[size.label] = parts_of(own[0], size, given.vllm, out / size.label)
        repeats = min(given.repeats, size.most_repeats)
        for spec in own:
            own_sides = {
                name: partial(timed, side, spec, name, out / "runs", console)
                for name, side in sides.items()
            }
            found.runs[spec.name] = in_turns(own_sides, repeats)
    return found


def report(found: Found, out: Path, page: Path | None, console: Console) -> None:
    """Keep what was measured as JSON, print the tables, and write them into the page."""
    record = {**asdict(found), "provenance": provenance()}
    (out / "bench.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    tables = [
        run_table(found.specs, found.runs),
        training_table(found.specs, found.runs, found.parts),
        part_table(found.parts),
    ]
    publish(caption(found), (), tables, page, console)
    console.print(f"wrote {out / 'bench.json'}")


def run(given: argparse.Namespace, console: Console) -> None:
    """Measure, and report; a page that cannot be written is refused first."""
    if given.docs:
        split_at_markers(given.docs)
    report(measure_all(given, console), given.out, given.docs, console)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 if something that is needed is missing."""
    parser = argparse.ArgumentParser(description="rlhf_lab against TRL, side by side.")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--trl", type=Path, default=Path(".venv-oracle"), help="TRL's environment")
    parser.add_argument("--vllm", type=Path, help="an environment with vLLM; none: not measured")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a trial: one repeat of two updates")
    parser.add_argument("--models", nargs="+", choices=MODELS)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=ALGORITHMS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2, help="cores of each side")
    parser.add_argument("--docs", type=Path, help="Markdown page whose marked tables are rewritten")
    given = parser.parse_args(arguments)
    if given.quick:
        given.repeats = 1
    return exit_code("bench", lambda: run(given, Console(quiet=False)))


if __name__ == "__main__":
    sys.exit(main())
