"""Save tables as Parquet or CSV, and load them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype, is_numeric_dtype

from rlhf_lab.runs.disk import atomic_file
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
# The digest of a set, in the attributes of its tables.
DIGEST = "set"
FINDING = ("kind", "run", "place", "what")
# Columns that each table must have.
NEEDED = {
    "points": ("run", AXES[-1]),
    "versions": ("run", *OWN, AXES[-1]),
    "runs": (*ABOUT_RUNS, "seed", "tags", "planned_rounds", "config"),
    "findings": FINDING,
}
# Columns of a CSV whose texts may look like numbers.
AS_TEXT = {"label", *ABOUT_RUNS, *FINDING, "kernels", "precision", "changed", "config", "tags"}
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


def set_of(file: Path) -> Path:
    """The path that tables were saved at, by the file of any of them."""
    stem, _, part = file.stem.rpartition(".")
    return file.with_name(f"{stem}{file.suffix}") if stem and part in PARTS else file


def is_saved(file: Path) -> bool:
    """Whether a file is one of saved tables: all of Parquet are, a CSV if its set has its runs."""
    return file.suffix == ".parquet" or (
        file.suffix == ".csv" and files(set_of(file))["runs"].is_file()
    )


def save(tables: Tables, path: Path) -> list[Path]:
    """Write all tables; returns their files. They take their places when all are written; those of
    Parquet have the digest of the set, so that tables of two sets are not read as one."""
    places = files(path)
    findings = pd.DataFrame([asdict(one) for one in tables.findings], columns=list(FINDING))
    frames = {"points": tables.points, "versions": tables.versions, "runs": tables.runs}
    frames["findings"] = findings.astype(str)
    digest = digest_of(frames.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for name, frame in frames.items():
            draft = stack.enter_context(atomic_file(places[name]))
            if path.suffix == ".csv":
                frame.to_csv(draft, index=False)
                continue
            # Of numbers with many digits a dictionary takes more room than the numbers.
            texts = [column for column in frame if not is_float_dtype(frame[column])]
            marked = frame.copy(deep=False)
            marked.attrs = {DIGEST: digest}
            options = {**PACKED, "use_dictionary": texts}
            marked.to_parquet(draft, engine="pyarrow", index=False, **options)
    return list(places.values())


def digest_of(frames: Iterable[pd.DataFrame]) -> str:
    """A digest of the columns and the rows of tables, in hex."""
    found = hashlib.sha256()
    for one in frames:
        found.update(repr([*one.columns]).encode("utf-8", "backslashreplace"))
        found.update(pd.util.hash_pandas_object(one, index=False).to_numpy().tobytes())
    return found.hexdigest()


def load(path: Path) -> Tables:
    """Tables that were saved. Raises Unreadable if a file of them is missing, damaged or of another
    set, or lacks a column that every table has."""
    places = files(path)
    for place in places.values():
        if not place.is_file():
            raise Unreadable(place, f"it is missing: save the tables again with --out {path}")
    frames = {name: frame(place, NEEDED[name]) for name, place in places.items()}
    require_one_set(frames, path)
    rows = frames.pop("findings")[list(FINDING)].itertuples(index=False)
    findings = (read_finding(tuple(row), number, path) for number, row in enumerate(rows, start=1))
    return Tables(frames["points"], frames["versions"], frames["runs"], tuple(findings))


def require_one_set(frames: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Raise Unreadable if the tables were not saved together. Those of CSV, and of Parquet without
    a digest, are compared by the runs that they have rows of."""
    runs, lacking = frames["runs"], list[str]()
    for name in ("points", "versions"):
        with_rows, known = set(frames[name]["run"]), set(runs["run"])
        counted = set(runs["run"][runs[name] > 0]) if is_numeric_dtype(runs.get(name)) else set()
        lacking += map(str, [*with_rows - known, *counted - with_rows])
    digests = {one.attrs.pop(DIGEST, None) for one in frames.values()}
    if len(digests) > 1 or (digests == {None} and lacking):
        what = f", for example {min(lacking)[:40]} is in some of them" if lacking else ""
        raise Unreadable(path, f"its tables were not saved together{what}: save them again")


def frame(path: Path, needed: Sequence[str]) -> pd.DataFrame:
    """The table of one file. Raises Unreadable if it lacks a needed column or has one twice."""
    is_csv = path.suffix == ".csv"
    with parsing(path, f"table of {'CSV' if is_csv else 'Parquet'}"):
        if is_csv:
            read = pd.read_csv(path, dtype=str, keep_default_na=False)
            read = read.apply(lambda column: column if column.name in AS_TEXT else typed(column))
        else:
            read = pd.read_parquet(path, engine="pyarrow", **{VERIFIED: True})
        names = [str(name) for name in read.columns]
    if lacking := [name for name in needed if name not in names]:
        raise Unreadable(path, f"it has no column {', '.join(lacking)}: save the tables again")
    if len(set(names)) < len(names):
        raise Unreadable(path, "it has a column twice: save the tables again")
    read.columns = pd.Index(names)
    return read


def typed(column: pd.Series) -> pd.Series:
    """A column of texts as numbers, NaN for those that are empty; as it is if one is no number."""
    try:
        return pd.Series([float(text) if text else math.nan for text in column], dtype="float64")
    except ValueError:
        return column


def read_finding(row: tuple[object, ...], number: int, path: Path) -> Finding:
    """The finding of a row; a row of an unknown kind becomes a finding about the file."""
    kind, *texts = map(str, row)
    if kind not in list(Kind):
        what = f"finding {number} is of no known kind: {kind[:40]!r}"
        return Finding(Kind.damaged, texts[0], str(path), what)
    return Finding(Kind(kind), *texts)
