"""Read runs from TensorBoard's event files by TensorBoard's own reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.reading import Unreadable, parsing
from rlhf_lab.runs.summaries import summary
from rlhf_lab.runs.trackers.tensorboard import EVALUATIONS
from rlhf_lab.runs.walk import find
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.axes import RUNTIME
from rlhf_lab_analysis.sources.damage import damage_finding, read_or_report
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.folders import config_of, facts_of
from rlhf_lab_analysis.sources.history import STEP, split_history
from rlhf_lab_analysis.sources.record import Facts, Reading, Record, Source, joined

SIGN = "tfevents"
# Bytes of an event's length and of two checksums beside it.
FRAME = 16


def read_events(root: Path) -> Reading:
    """The runs of a folder's event files, one a folder. A run's manifest adds facts."""
    problems: list[Unreadable] = []
    folders = sorted({path.parent for path in find(root, lambda path: SIGN in path.name, problems)})
    readings = [read_or_report(partial(read_run, folder, root)) for folder in folders]
    return joined([*readings, Reading((), tuple(map(damage_finding, problems)))])


def read_run(folder: Path, root: Path) -> Reading:
    return Reading((record_of(folder, root),))


def record_of(folder: Path, root: Path) -> Record:
    """The scalars of one folder by step. Seconds are those since its first event. Evaluations are
    in files of their own, since they share steps with rounds."""
    paths = sorted(path for path in folder.glob(f"*{SIGN}*") if path.is_file())
    problems = [what for path in paths if (what := find_cut(path))]
    run, config, facts = describe_run(folder, root)
    found = [Finding(Kind.damaged, run, str(folder), what) for what in problems]
    judged = [path for path in paths if path.name.endswith(EVALUATIONS)]
    begun, rows = 0.0, list[dict[str, Any]]()
    for part in ([path for path in paths if path not in judged], judged):
        begun, more, lost = scalars_of(part, folder, begun)
        rows += more
        if lost:
            what = f"{lost} values of earlier sessions are left out: a later one wrote their steps"
            found.append(Finding(Kind.duplicate, run, str(folder), what))
    rounds, evals = split_history(rows)
    return Record(Source.tensorboard, run, str(folder), facts, config, rounds, evals, tuple(found))


def find_cut(path: Path) -> str:
    """The byte at which reading a file ended before its end; "" if it was read whole. TensorBoard's
    own reader gives no error there."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

    with parsing(path, "event file"):
        read = sum(FRAME + len(event) for event in RawEventFileLoader(str(path)).Load())
    size = path.stat().st_size
    return "" if read == size else f"read up to byte {read} of {size} of {path.name}: it is damaged"


def scalars_of(
    paths: Sequence[Path], folder: Path, begun: float
) -> tuple[float, list[dict[str, Any]], int]:
    """The scalars of the files of a run as a row for every step, as TensorBoard's own reader merges
    the sessions of a run that was restarted: what a session overwrites (`purge_step`) is not there.

    begun: when the run's first event was written, 0 if that is not known. Returns the same of these
    files too, the rows, and how many values a later session replaced. Raises UserError if
    tensorboard is not installed.
    """
    try:
        from tensorboard.backend.event_processing.event_accumulator import (
            SCALARS,
            EventAccumulator,
        )
    except ImportError as error:
        raise UserError(
            f"{folder} holds TensorBoard's events: reading them needs the package tensorboard "
            "(pip install 'rlhf-lab[tensorboard]')"
        ) from error
    rows: dict[int, dict[str, Any]] = {}
    num_written = 0
    with TemporaryDirectory() as place, parsing(folder, "folder of event files"):
        for path in paths:
            (Path(place) / path.name).symlink_to(path.resolve())
        for is_purging in (False, True) if len(paths) > 1 else (True,):
            # 0 keeps all: by default it would be a sample of 10,000 points.
            events = EventAccumulator(place, {SCALARS: 0}, purge_orphaned_data=is_purging)
            events.Reload()
            names = events.Tags()[SCALARS]
            num_written = num_written or sum(len(events.Scalars(name)) for name in names)
        begun = begun or (events.FirstEventTimestamp() if names else 0.0)
        for name in names:
            for event in events.Scalars(name):
                row = rows.setdefault(event.step, {STEP: event.step})
                row |= {name: event.value, RUNTIME: event.wall_time - begun}
    num_kept = sum(len(row.keys() - {STEP, RUNTIME}) for row in rows.values())
    return begun, list(rows.values()), num_written - num_kept


def describe_run(folder: Path, root: Path) -> tuple[str, Mapping[str, Any], Facts]:
    """Id, config and facts of the run that wrote the events; without a run's folder, its path."""
    if not (folder.parent / MANIFEST).is_file():
        return str(folder), {}, Facts(project=str(root), step=STEP)
    found = summary(folder.parent, folder.parent.name)
    config = config_of(folder.parent, found.manifest, [])
    run_id = str(found.manifest.get("run_id") or folder)
    return run_id, config, facts_of(found.manifest, config, str(root))
