"""Read the sources that a user names: run folders, tracker files, tables, wandb projects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rlhf_lab.runs.folder import MANIFEST
from rlhf_lab.runs.reading import Unreadable
from rlhf_lab.runs.walk import is_run, walk
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.csv_files import read_csv
from rlhf_lab_analysis.sources.filters import ALL, Filters
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.sources.folders import read_folder
from rlhf_lab_analysis.sources.online import read_online
from rlhf_lab_analysis.sources.open_rl_benchmark import DATABASE, read_benchmark
from rlhf_lab_analysis.sources.record import Reading, Source, joined
from rlhf_lab_analysis.sources.tensorboard_files import read_events
from rlhf_lab_analysis.sources.validity import clean_reading
from rlhf_lab_analysis.sources.wandb_files import read_offline
from rlhf_lab_analysis.tables.saved import SIGNS as SIGNS_OF_SAVED
from rlhf_lab_analysis.tables.saved import read_saved
from rlhf_lab_analysis.tables.store import is_saved

READERS: dict[Source, Callable[[Path], Reading]] = {
    Source.folder: read_folder,
    Source.offline: read_offline,
    Source.orb: read_benchmark,
    Source.tensorboard: read_events,
    Source.csv: partial(read_csv, is_other=is_saved),
    Source.saved: read_saved,
}
# The first kind that a folder holds is what it is read as; the files of runs are not searched.
SIGNS: dict[Source, Callable[[str], bool]] = {
    Source.folder: lambda name: name == MANIFEST,
    Source.orb: lambda name: name == DATABASE,
    Source.offline: lambda name: name.endswith(".wandb"),
    Source.tensorboard: lambda name: "tfevents" in name,
    Source.csv: lambda name: name.endswith(".csv"),
    Source.saved: lambda name: name.endswith(SIGNS_OF_SAVED),
}
# A database of Open RL Benchmark has a CSV a run.
BELONGS = {Source.csv: Source.orb}


def read_sources(texts: Sequence[str], filters: Filters = ALL) -> Reading:
    """Everything that the sources hold; of a project of wandb's server the runs that the filters
    choose. Raises UserError on a source that cannot be read, and names the kinds that can."""
    return clean_reading(joined(read_source(text, filters) for text in texts))


def read_source(text: str, filters: Filters = ALL) -> Reading:
    """Read one source: `KIND:PLACE`, or a path whose kind follows from its files."""
    kind, colon, rest = text.partition(":")
    named = Source(kind) if colon and kind in list(Source) else None
    if named is Source.wandb:
        return read_online(rest, filters)
    path = Path(rest if named else text)
    if not path.exists():
        raise UserError(
            f"{text}: there is no such file or folder: pass a folder of runs, or KIND:PLACE with "
            f"one of {', '.join(Source)}"
        )
    if named:
        return READERS[named](path)
    kind, *others = kinds_of(path)
    reading = READERS[kind](path)
    # Such as the tables and CSVs that commands wrote beside the runs.
    findings = (
        Finding(Kind.unread, "", str(path), f"{other} beside its runs: pass {other}:{path} too")
        for other in others
    )
    return replace(reading, findings=(*reading.findings, *findings))


def kinds_of(path: Path) -> list[Source]:
    """The kind of source that a path is, and those that it holds beside folders of runs, which come
    first. Raises UserError if it holds no kind, or several and no run."""
    problems: list[Unreadable] = []
    found = signs_in(path, problems)
    kinds = [kind for kind in SIGNS if kind in found and BELONGS.get(kind) not in found]
    if not kinds and problems:
        raise problems[0]
    if not kinds:
        raise UserError(
            f"{path} holds nothing to read ({MANIFEST}, {DATABASE}, event files, .csv or saved "
            "tables): `rlhf-lab runs` lists what was run"
        )
    if len(kinds) > 1 and kinds[0] is not Source.folder:
        choices = ", ".join(f"{kind}:{path}" for kind in kinds)
        raise UserError(f"{path} can be read in several ways: pass one or more of {choices}")
    return kinds


def signs_in(path: Path, problems: list[Unreadable]) -> set[Source]:
    """The kinds of files in a folder or below it, outside of the folders of runs. problems: gets
    what cannot be read."""
    if path.is_file():
        return {Source.saved} if is_saved(path) else kinds_named(path.name)
    found: set[Source] = set()
    for folder, files in walk(path, problems):
        if is_run(files):
            found.add(Source.folder)
            continue
        for name in files:
            named = kinds_named(name)
            found |= named - {Source.csv} if is_saved(folder / name) else named
    return found


def kinds_named(name: str) -> set[Source]:
    """The kinds of source that a file of this name is a sign of."""
    return {kind for kind, is_sign in SIGNS.items() if is_sign(name)}
