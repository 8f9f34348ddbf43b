"""Tables as files: Parquet to go on with, CSV to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from analysis.tables.findings import Finding, Kind
from analysis.tables.table import Tables
from rlhf_lab.types import UserError

PARTS = ("versions", "runs", "findings")
FINDING = ("kind", "run", "place", "what")


def files(path: Path) -> dict[str, Path]:
    """Where the tables go: points at path, the others beside it. Raises UserError on a suffix that
    is neither .parquet nor .csv."""
    if path.suffix not in (".parquet", ".csv"):
        raise UserError(f"--out {path}: choose a name that ends in .parquet or .csv")
    return {"points": path} | {part: path.with_suffix(f".{part}{path.suffix}") for part in PARTS}


def save(tables: Tables, path: Path) -> list[Path]:
    """Write all tables; returns their files."""
    places = files(path)
    found = pd.DataFrame([asdict(one) for one in tables.findings], columns=list(FINDING))
    frames = {"points": tables.points, "versions": tables.versions, "runs": tables.runs}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, frame in {**frames, "findings": found.astype(str)}.items():
        if path.suffix == ".parquet":
            frame.to_parquet(places[name], engine="pyarrow", index=False)
        else:
            frame.to_csv(places[name], index=False)
    return list(places.values())


def load(path: Path) -> Tables:
    """Tables that were saved as Parquet. Raises UserError if a file of them is missing."""
    if path.suffix != ".parquet":
        raise UserError(f"{path}: only tables saved as .parquet are read again")
    places = files(path)
    for place in places.values():
        if not place.is_file():
            raise UserError(f"{place} is missing: save the tables again with --out {path}")
    read: Callable[[Path], pd.DataFrame] = pd.read_parquet
    frames = {name: read(place) for name, place in places.items()}
    findings = tuple(
        Finding(Kind(row.kind), str(row.run), str(row.place), str(row.what))
        for row in frames.pop("findings").itertuples(index=False)
    )
    return Tables(frames["points"], frames["versions"], frames["runs"], findings)
