"""Read runs from TensorBoard's event files by TensorBoard's own reader."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.reading import parsing
from rlhf_lab.runs.summaries import summary
from rlhf_lab.runs.trackers.tensorboard import EVALUATIONS
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.axes import RUNTIME
from rlhf_lab_analysis.sources.damage import read_or_report
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.folders import config_of, facts_of
from rlhf_lab_analysis.sources.history import STEP, split_history
from rlhf_lab_analysis.sources.record import Facts, Reading, Record, Source, joined

PATTERN = "*tfevents*"
# Bytes of an event's length and of two checksums beside it.
FRAME = 16


def read_events(root: Path) -> Reading:
    """The runs of a folder's event files, one a folder. A run's manifest adds facts."""
    folders = sorted({path.parent for path in root.rglob(PATTERN) if path.is_file()})
    return joined(read_or_report(partial(read_run, folder, root)) for folder in folders)


def read_run(folder: Path, root: Path) -> Reading:
    return Reading((record_of(folder, root),))


def record_of(folder: Path, root: Path) -> Record:
    """The scalars of one folder by step. Seconds are those since its first event. Evaluations are
    in files of their own, since they share steps with rounds."""
    paths = sorted(path for path in folder.glob(PATTERN) if path.is_file())
    judged = [path for path in paths if path.name.endswith(EVALUATIONS)]
    parts = [[path for path in paths if path not in judged], judged]
    begun, rows = 0.0, list[dict[str, Any]]()
    for part in parts:
        found: dict[int, dict[str, Any]] = {}
        for path in part:
            begun = add_scalars(path, found, begun)
        rows += found.values()
    rounds, evals = split_history(rows)
    run, config, facts = describe_run(folder, root)
    cut = tuple(
        Finding(Kind.damaged, run, str(folder), what) for path in paths if (what := find_cut(path))
    )
    return Record(Source.tensorboard, run, str(folder), facts, config, rounds, evals, cut)


def find_cut(path: Path) -> str:
    """The byte at which reading a file ended before its end; "" if it was read whole. TensorBoard's
    own reader gives no error there."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    with parsing(path, "event file"):
        read = sum(FRAME + len(event) for event in RawEventFileLoader(str(path)).Load())
    size = path.stat().st_size
    return "" if read == size else f"read up to byte {read} of {size} of {path.name}: it is damaged"


def add_scalars(path: Path, rows: dict[int, dict[str, Any]], begun: float) -> float:
    """Add the scalars of a file to the rows of every step. begun: when the first event of earlier
    files was written, 0 if there is none; returned is that of all. Raises UserError if tensorboard
    is not installed."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import (
            SCALARS,
            EventAccumulator,
        )
    except ImportError as error:
        raise UserError(
            f"{path} holds TensorBoard's events: reading them needs the package tensorboard "
            "(pip install 'rlhf-lab[tensorboard]')"
        ) from error
    # 0 keeps all: by default it would be a sample of 10,000 points.
    events = EventAccumulator(str(path), size_guidance={SCALARS: 0})
    with parsing(path, "event file"):
        events.Reload()
        names = events.Tags()[SCALARS]
        begun = begun or (events.FirstEventTimestamp() if names else 0.0)
        for name in names:
            for event in events.Scalars(name):
                row = rows.setdefault(event.step, {STEP: event.step})
                row |= {name: event.value, RUNTIME: event.wall_time - begun}
    return begun


def describe_run(folder: Path, root: Path) -> tuple[str, Mapping[str, Any], Facts]:
    """Id, config and facts of the run that wrote the events; without a run's folder, its path."""
    if not (folder.parent / MANIFEST).is_file():
        return str(folder), {}, Facts(project=str(root), step=STEP)
    found = summary(folder.parent, folder.parent.name)
    config = config_of(folder.parent, found.manifest, [])
    run_id = str(found.manifest.get("run_id") or folder)
    return run_id, config, facts_of(found.manifest, config, str(root))
