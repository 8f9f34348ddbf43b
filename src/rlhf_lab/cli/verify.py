"""`rlhf-lab verify`: whether the files of runs are those that the runs wrote."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlhf_lab.cli.command import OptionsCommand
from rlhf_lab.cli.exit_codes import FAILED
from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.manifest import read_manifest
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.trackers.console import Console, counted
from rlhf_lab.runs.verification import verify_run
from rlhf_lab.runs.walk import is_run, walk
from rlhf_lab.types.errors import UserError

SHOWN = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "a run's folder, or a folder of runs"
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN", help=about)


def verify(options: argparse.Namespace, console: Console) -> int:
    """Print a line for each finding, and the files that nothing is known of. Returns 1 if there is
    a finding."""
    unread: list[Unreadable] = []
    runs = [run for folder in options.folders for run in runs_below(folder, unread)]
    found = list(map(str, unread))
    for run in runs:
        problems, missing = verify_run(run)
        found += [*problems, *weights_problems(run, missing), *checkpoint_problems(run)]
        if missing:
            console.print(f"note: {run} has no record of {named(missing)}")
    for line in found:
        console.print(line)
    problems_text = counted(len(found), "finding") if found else "no findings"
    console.print(f"{counted(len(runs), 'run')}: {problems_text}")
    return FAILED if found else 0


def runs_below(folder: Path, unread: list[Unreadable]) -> Sequence[Path]:
    """The runs in a folder. unread: gets what cannot be read. Raises UserError if there is none."""
    runs = sorted(one for one, files in walk(folder, unread) if is_run(files))
    if runs or unread:
        return runs
    raise UserError(f"{folder} holds no run: rlhf-lab verify RUN takes folders with runs")


def named(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def weights_problems(run: Path, missing: Sequence[str]) -> Iterator[str]:
    """A line if the last version, of which there is no record, has not the run's digest."""
    try:
        manifest = read_manifest(run / MANIFEST)
    except Unreadable:
        return
    name = f"weights/{manifest.get('num_rounds') or 0:06d}.safetensors"
    if name not in missing or "weights_digest" not in manifest:
        return
    from rlhf_lab.models.weights import weights_digest
    from rlhf_lab.runs.saved_tensors import read_version

    try:
        weights = read_version(manifest["num_rounds"] or 0, run / name)
    except Unreadable as error:
        yield str(error)
    else:
        if weights_digest(weights) != manifest["weights_digest"]:
            yield f"{run / name}: its weights are not those of the run (weights_digest)"


def checkpoint_problems(run: Path) -> Iterator[str]:
    """A line for each damaged checkpoint."""
    from rlhf_lab.runs.disk import CorruptFolder
    from rlhf_lab.runs.disk import verify as verify_folder

    for folder in sorted((run / "checkpoints").glob("[0-9]*")):
        try:
            verify_folder(folder)
        except CorruptFolder as error:
            yield str(error)


VERIFY = OptionsCommand(
    "verify",
    "check every file of runs against what they recorded of it",
    "runs/RUN",
    usage="RUN [RUN ...]",
    completes="folders",
    add_options=add_options,
    action=verify,
)
