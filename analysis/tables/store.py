"""Save tables as Parquet, which can be read again, or as CSV; load those saved as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype

from rlhf_lab.runs.reading import Unreadable, parsing
from rlhf_lab.types.errors import UserError
from rlhf_lab_analysis.sources.axes import COLUMNS as AXES
from rlhf_lab_analysis.sources.findings import Finding, Kind
from rlhf_lab_analysis.tables.frames import OWN
from rlhf_lab_analysis.tables.table import Tables

# Texts about a run.
TEXTS = (
    "state", "name", "sweep", "swept", "project", "job_type", "code", "content", "commit",
    "started", "step", "machine",
)  # fmt: skip
ABOUT_RUNS = ("source", "run", "place", *TEXTS)
PARTS = ("versions", "runs", "findings")
FINDING = ("kind", "run", "place", "what")
# Columns that each table must have.
NEEDED = {
    "points": ("run", AXES[-1]),
    "versions": ("run", *OWN, AXES[-1]),
    "runs": (*ABOUT_RUNS, "seed", "tags", "planned_rounds", "config"),
    "findings": FINDING,
}
# Pyarrow's own names: a changed byte is noticed, and not read as another number.
CHECKSUMS, VERIFIED = "write_page_checksum", "page_checksum_verification"
# A quarter smaller than pyarrow's default, and read as fast: tables are kept in git.
PACKED: dict[str, Any] = {CHECKSUMS: True, "compression": "zstd", "compression_level": 19}


def files(path: Path) -> dict[str, Path]:
    """The file of each table: points at path, the others in its folder. Raises UserError on a
    suffix that is neither .parquet nor .csv."""
    if path.suffix not in (".parquet", ".csv"):
        raise UserError(f"--out {path}: choose a name that ends in .parquet or .csv")
    return {"points": path} | {part: path.with_suffix(f".{part}{path.suffix}") for part in PARTS}


def save(tables: Tables, path: Path) -> list[Path]:
    """Write all tables; returns their files."""
    places = files(path)
    findings = pd.DataFrame([asdict(one) for one in tables.findings], columns=list(FINDING))
    frames = {"points": tables.points, "versions": tables.versions, "runs": tables.runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, frame in {**frames, "findings": findings.astype(str)}.items():
        if path.suffix == ".parquet":
            # Of numbers with many digits a dictionary takes more room than the numbers.
            texts = [column for column in frame if not is_float_dtype(frame[column])]
            options = {**PACKED, "use_dictionary": texts}
            frame.to_parquet(places[name], engine="pyarrow", index=False, **options)
        else:
            frame.to_csv(places[name], index=False)
    return list(places.values())


def load(path: Path) -> Tables:
    """Tables that were saved as Parquet. Raises Unreadable if a file of them is missing or damaged,
    or lacks a column that every table has."""
    if path.suffix != ".parquet":
        raise UserError(f"{path}: only tables saved as .parquet are read again")
    places = files(path)
    for place in places.values():
        if not place.is_file():
            raise Unreadable(place, f"it is missing: save the tables again with --out {path}")
    frames = {name: frame(place, NEEDED[name]) for name, place in places.items()}
    rows = frames.pop("findings")[list(FINDING)].itertuples(index=False)
    findings = (read_finding(tuple(row), number, path) for number, row in enumerate(rows, start=1))
    return Tables(frames["points"], frames["versions"], frames["runs"], tuple(findings))


def frame(path: Path, needed: Sequence[str]) -> pd.DataFrame:
    """The table of one file. Raises Unreadable if it lacks a needed column or has one twice."""
    with parsing(path, "table of Parquet"):
        read = pd.read_parquet(path, engine="pyarrow", **{VERIFIED: True})
        names = [str(name) for name in read.columns]
    if lacking := [name for name in needed if name not in names]:
        raise Unreadable(path, f"it has no column {', '.join(lacking)}: save the tables again")
    if len(set(names)) < len(names):
        raise Unreadable(path, "it has a column twice: save the tables again")
    read.columns = pd.Index(names)
    return read


def read_finding(row: tuple[object, ...], number: int, path: Path) -> Finding:
    """The finding of a row; a row of an unknown kind becomes a finding about the file."""
    kind, *texts = map(str, row)
    if kind not in list(Kind):
        what = f"finding {number} is of no known kind: {kind[:40]!r}"
        return Finding(Kind.damaged, texts[0], str(path), what)
    return Finding(Kind(kind), *texts)
