"""A damaged source is read as far as it goes, or is a finding: its fellows are shown."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlhf_lab.runs.reading import Unreadable
from rlhf_lab_analysis.sources.findings import Kind
from rlhf_lab_analysis.sources.open_rl_benchmark import read_database
from rlhf_lab_analysis.sources.record import Facts, Reading, Record, Source, as_seed, cell
from rlhf_lab_analysis.sources.validity import clean_reading
from rlhf_lab_analysis.tables.__main__ import main
from rlhf_lab_analysis.tables.readers import read_sources
from rlhf_lab_analysis.tables.table import make_tables
from tests.support import source_files
from tests.support.source_files import CSV, SOURCES, files_of

pytestmark = pytest.mark.usefixtures("costly")


def problems(source: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is wrong with a source. Tables are made of it, or it is refused in one line."""
    reading = read_sources([source])
    code = main([source])
    errors = capsys.readouterr().err
    assert code == (0 if reading.records else 2)
    assert len(errors.splitlines()) == (0 if reading.records else 1), errors
    own = [one.what for record in reading.records for one in record.findings]
    made = make_tables(reading).findings if reading.records else reading.findings
    return [*own, *(one.what for one in made), *(one.what for one in reading.findings)]


# CSV.


def row(**changes: str) -> bytes:
    values = {"run": "c", "seed": "3", "version": "", "loss": "1", **changes}
    return (",".join(values) + "\n" + ",".join(values.values()) + "\n").encode()


CSV_CASES: dict[str, tuple[bytes, str]] = {
    "text as version": (row(version="two"), "line 2: version 'two' is no whole number"),
    "inf as version": (row(version="inf"), "line 2: version 'inf' is no whole number"),
    "nan as version": (row(version="nan"), "no whole number"),
    "half a version": (row(version="2.5"), "no whole number"),
    "version below 0": (row(version="-1"), "version is no whole number from 0 on"),
    "1e30 as version": (row(version="1e30"), "no whole number"),
    "1e30 as seed": (row(seed="1e30"), "seed '1e30' of run c is no whole number"),
    "a huge seed": (row(seed="9" * 40), "it has no seed"),
    "inf as seed": (row(seed="inf"), "no whole number"),
    "inf in a setting": (row(**{"config.run.group_size": "inf"}), ""),
    "a huge setting": (row(**{"config.run.updates": "9" * 400}), ""),
    "a huge number": (row(loss="9" * 400), "loss is not finite"),
    "digits without end": (row(loss="9" * 5000), "loss is not finite"),
    "a huge time": (row(**{"x/wall_hours": "9" * 400}), ""),
    "nan as round": (row(**{"x/rounds": "nan"}), "not finite"),
    "UTF-16": (CSV.encode("utf-16"), "byte 1 is not UTF-8"),
    "latin-1": (CSV.replace("grpo", "grüp").encode("latin-1"), "line 2: byte"),
    "a wide field": (row(loss="x" * 200_000), ""),
    "NUL": (row(loss="1\0"), ""),
    "only NUL": (b"\0" * 100, "no column `run`"),
    "ragged": (CSV.encode() + b"a,1\nb" + b"," * 99, "line 6 has 2 of 10 values"),
    "an open quote": (CSV.encode() + b'a,1,"E', "line 6 is no CSV (unexpected end of data)"),
    "text behind a quote": (CSV.encode() + b'a,"1"x,E\n', "line 6 is no CSV"),
    "empty": (b"", "no column `run`"),
    "a column twice": (b"run,run\na,b\n", "the column run twice"),
}


@pytest.mark.parametrize("name", CSV_CASES)
def test_a_damaged_csv_is_a_finding(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = CSV_CASES[name]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert expected in " | ".join(problems(str(path), capsys))


def test_damaged_files_leave_their_fellows_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source_files.csv(tmp_path)
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    assert main([str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 runs") and "bad.csv: line 1: byte 1 is not UTF-8" in shown
    assert "pipe.csv: it is no regular file" in shown


# Parquet.

Change = Callable[[pd.DataFrame], Any]
PARQUET_CASES: dict[str, tuple[str, Change, str]] = {
    "a source that is none": (".runs", lambda t: t.assign(source="tape"), "its source is 'tape'"),
    "a kind that is none": (".findings", lambda t: t.assign(kind="odd"), "of no known kind: 'odd'"),
    "bad JSON": (".runs", lambda t: t.assign(config="{"), "it is not JSON"),
    "a config that is a list": (".runs", lambda t: t.assign(config="[1]"), "should be an object"),
    "a config that is a number": (".runs", lambda t: t.assign(config=1), "valid string, not 1"),
    "no config": (".runs", lambda t: t.assign(config=None), "valid string, not None"),
    "deep JSON": (".runs", lambda t: t.assign(config="[" * 10**5), "it is not JSON"),
    "tags that are none": (".runs", lambda t: t.assign(tags="[1]"), "key 0: Input should be a v"),
    "text as seed": (".runs", lambda t: t.assign(seed="x"), "column seed: no whole number, 'x'"),
    "1e30 as seed": (".runs", lambda t: t.assign(seed=1e30), "no whole number, '1e+30'"),
    "half a round": (".runs", lambda t: t.assign(planned_rounds=0.5), "no whole number, '0.5'"),
    "a lost column": (".runs", lambda t: t.drop(columns="tags"), "it has no column tags"),
    "no axes": ("", lambda t: t[["run"]], "it has no column x/step"),
    "text as version": (".versions", lambda t: t.assign(version="x"), "no whole number"),
    "inf as version": (".versions", lambda t: t.assign(version=float("inf")), "no whole number"),
    "no version": (".versions", lambda t: t.assign(version=None), "no whole number"),
    "lists as numbers": ("", lambda t: t.assign(**{"reward/mean": [[1]] * len(t)}), "left out"),
    "times as numbers": (
        "", lambda t: t.assign(**{"reward/mean": pd.Timestamp(0)}), "Timestamp, not numbers",
    ),
    "bytes as names": (".runs", lambda t: t.assign(run=b"\xff"), ""),
    "numbers as runs": ("", lambda t: t.assign(run=1), ""),
    "nothing": (".runs", lambda t: t.iloc[:0], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PARQUET_CASES)
def test_tables_of_other_columns_are_a_finding(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part, change, expected = PARQUET_CASES[name]
    source = source_files.parquet(tmp_path)
    path = source.with_suffix(f"{part}.parquet")
    change(pd.read_parquet(path)).to_parquet(path)
    assert expected in " | ".join(problems(str(source), capsys))


@pytest.mark.parametrize("part", ["", ".versions", ".runs", ".findings"])
def test_tables_that_are_cut_short_empty_or_changed_are_a_finding(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = source_files.parquet(tmp_path)
    path = source.with_suffix(f"{part}.parquet")
    data = path.read_bytes()
    flipped = bytes(byte ^ 1 if place == 40 else byte for place, byte in enumerate(data))
    for damaged in (b"", data[:4], data[:-9], data[len(data) // 2 :], b"\0" * 99, flipped):
        path.write_bytes(damaged)
        assert "it is no table of Parquet that can be read" in problems(str(source), capsys)[0]


# The database of Open RL Benchmark.

SQL_CASES: dict[str, tuple[str, str]] = {
    "null": ("UPDATE offlinerun SET config = 'null' WHERE id = 'a'", "should be an object"),
    "a list": ("UPDATE offlinerun SET config = '[]' WHERE id = 'a'", "should be an object"),
    "a number": ("UPDATE offlinerun SET config = '1' WHERE id = 'a'", "should be an object"),
    "no JSON": ("UPDATE offlinerun SET config = '{' WHERE id = 'a'", "it is not JSON"),
    "a blob": ("UPDATE offlinerun SET config = x'ff' WHERE id = 'a'", "valid string"),
    "no UTF-8": ("UPDATE offlinerun SET config = CAST(x'ff' AS TEXT)", "no database"),
    "no column": ("ALTER TABLE offlinerun DROP COLUMN config", "its runs have no config"),
    "no id": ("ALTER TABLE offlinerun DROP COLUMN id", "its runs have no id"),
    "no table": ("DROP TABLE offlinerun", "no such table: offlinerun"),
    "no tags": ("DROP TABLE tag", "no such table"),
    "a foreign id": ("UPDATE offlinerun SET id = '../../../etc' WHERE id = 'a'", "it is missing"),
    "an id that is none": ("UPDATE offlinerun SET id = x'00' WHERE id = 'a'", "null byte"),
}


@pytest.mark.parametrize("name", SQL_CASES)
def test_a_damaged_row_of_a_database_is_a_finding(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statement, expected = SQL_CASES[name]
    source_files.benchmark(tmp_path)
    with closing(sqlite3.connect(tmp_path / "me/p/offline.sqlite")) as database, database:
        if name == "no UTF-8":
            statement += " WHERE id = 'a'"
        elif name == "an id that is none":
            statement = "UPDATE offlinerun SET id = 'a' || char(0) || 'b' WHERE id = 'a'"
        database.execute(statement)
    assert expected in " | ".join(problems(str(tmp_path), capsys))
    if "WHERE" in statement and name != "no UTF-8":
        assert [one.run for one in read_sources([str(tmp_path)]).records] == ["b"]


def test_a_curve_is_read_up_to_its_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source_files.benchmark(tmp_path)
    path = tmp_path / "me/p/a/run_df.csv"
    path.write_bytes(path.read_bytes()[:-30])
    (found,) = {what for what in problems(f"orb:{tmp_path}", capsys) if "run_df.csv" in what}
    assert found.endswith("and is left out")
    (tmp_path / "me/p/offline.sqlite").write_bytes(b"")
    assert "no such table" in problems(f"orb:{tmp_path}", capsys)[0]
    (tmp_path / "me/p/offline.sqlite").unlink()
    assert problems(f"orb:{tmp_path}", capsys) == []


# TensorBoard.


def test_event_files_are_read_up_to_their_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = files_of(source_files.events(tmp_path))
    data = path.read_bytes()
    flipped = bytes(byte ^ 1 if place == 300 else byte for place, byte in enumerate(data))
    for damaged, read in ((data[:-5], 9), (flipped, 4), (b"rubbish" * 99, 0), (b"\xff" * 99, 0)):
        path.write_bytes(damaged)
        told = " | ".join(problems(str(tmp_path), capsys))
        assert f"of {len(damaged)} of {path.name}: it is damaged" in told
        (run,) = read_sources([str(tmp_path)]).records
        names = ("loss", "total/rounds")
        assert sum(name in row for row in run.rounds for name in names) == read
    path.write_bytes(b"")
    problems(str(tmp_path), capsys)


# All of them.


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes, start: int) -> bytes:
    places = range(start, len(data), max(1, len(data) // 3))
    return bytes(byte ^ 0x55 if place in places else byte for place, byte in enumerate(data))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": cut,
    "zero": lambda data: bytes(len(data)),
    "flipped at 0": partial(flip, start=0),
    "flipped at 25": partial(flip, start=25),
    "doubled": lambda data: data * 2,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_no_damage_of_a_source_is_a_traceback(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SOURCES[kind](tmp_path)
    for path in files_of(tmp_path):
        sound_bytes = path.read_bytes()
        for damage in DAMAGES.values():
            path.write_bytes(damage(sound_bytes))
            problems(f"{kind}:{source}", capsys)
        path.unlink()
        path.mkdir()
        problems(f"{kind}:{source}", capsys)
        path.rmdir()
        path.write_bytes(sound_bytes)
    assert read_sources([f"{kind}:{source}"]).findings == ()


# What every record is checked for.


def test_a_record_of_any_source_has_the_types_that_tables_need() -> None:
    facts = Facts(seed=10**30, planned_rounds=float("nan"), name="a\udc80")  # type: ignore[arg-type]
    evals: list[Any] = [{"version": v} for v in (0, 3.0, None, "x", -1, float("inf"), 10**30, [1])]
    record = Record(Source.csv, "r\udcff", "place", facts, {}, [{"a": [1], "b": 1}], evals)  # type: ignore[dict-item]
    (found,) = clean_reading(Reading((record,))).records
    assert [row["version"] for row in found.evals] == [0, 3]
    assert (found.rounds, found.run) == ([{"b": 1}], "r\\udcff")
    assert (found.facts.seed, found.facts.planned_rounds, found.facts.name) == (
        None,
        None,
        "a\\udc80",
    )
    assert {one.kind for one in found.findings} == {Kind.damaged} and len(found.findings) == 6
    make_tables(Reading((found,)))


def test_a_seed_is_a_whole_number_of_64_bits() -> None:
    given = [3, "3", 3.0, 3.5, True, None, float("inf"), float("nan"), 10**30, "1e3", [1], 2**63]
    assert [as_seed(value) for value in given] == [3, 3, 3] + [None] * 9
    assert cell(-(10**400)) == float("-inf")


@pytest.mark.parametrize("end", ["", "-journal", "-wal"])
def test_a_pipe_in_the_place_of_a_database_is_not_waited_for(tmp_path: Path, end: str) -> None:
    source_files.benchmark(tmp_path)
    (database,) = tmp_path.rglob("offline.sqlite")
    if not end:
        database.unlink()
    os.mkfifo(f"{database}{end}")
    with pytest.raises(Unreadable, match=f"sqlite{end}: it is no regular file"):
        read_database(database)
