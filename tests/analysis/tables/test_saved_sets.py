"""Tables that are saved together are read together, of Parquet and of CSV."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rlhf_lab.runs.reading import Unreadable
from rlhf_lab_analysis.tables import store
from rlhf_lab_analysis.tables.gather import gather
from rlhf_lab_analysis.tables.readers import kinds_of
from rlhf_lab_analysis.tables.store import files, load, save
from tests.support import table_records as made

ENDS = (".parquet", ".csv")


@pytest.mark.parametrize("end", ENDS)
def test_a_set_is_read_as_it_was_written_by_the_name_of_any_part(tmp_path: Path, end: str) -> None:
    rows = made.rounds(metrics={"note": "a", "half": 0.1})
    commit = "12345678"  # a text that looks like a number
    first = made.tables(made.record("7", 1, rounds=rows, commit=commit), made.record("b", None))
    path = tmp_path / f"t{end}"
    written = {file: file.read_bytes() for file in save(first, path)}
    for place in (path, tmp_path, tmp_path / f"t.versions{end}"):
        again = gather([str(place)])
        assert again.findings == first.findings
        for name in ("points", "versions", "runs"):
            pd.testing.assert_frame_equal(
                getattr(again, name), getattr(first, name), check_like=True
            )
    assert {file: file.read_bytes() for file in save(again, path)} == written


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("part", ["points", "versions", "runs"])
def test_tables_of_two_sets_are_not_read_as_one(tmp_path: Path, end: str, part: str) -> None:
    path, other = tmp_path / f"t{end}", tmp_path / "other" / f"t{end}"
    save(made.tables(made.record("a", 1)), path)
    save(made.tables(made.record("a", 1), made.record("b", 2)), other)
    files(other)[part].replace(files(path)[part])
    with pytest.raises(Unreadable, match="were not saved together"):
        load(path)


@pytest.mark.parametrize("end", ENDS)
def test_a_set_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    path = tmp_path / f"t{end}"
    save(made.tables(made.record("a", 1)), path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    made_two = made.tables(made.record("a", 1), made.record("b", 2))
    writer = "to_csv" if end == ".csv" else "to_parquet"
    plain = getattr(pd.DataFrame, writer)

    def full(frame: pd.DataFrame, draft: Path, **options: object) -> None:
        plain(frame, draft, **options)
        if "runs" in draft.name:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, writer, full)
    with pytest.raises(OSError) as raised:
        save(made_two, path)
    assert raised.value.filename == str(files(path)["runs"])
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_sets_of_parquet_without_a_digest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    save(made.tables(made.record("a", 1)), path)
    for place in files(path).values():
        frame = pd.read_parquet(place)
        assert frame.attrs.pop(store.DIGEST)
        frame.to_parquet(place)
    assert len(load(path).runs) == 1


def test_a_csv_of_others_beside_a_set_is_another_source(tmp_path: Path) -> None:
    save(made.tables(made.record("a", 1)), tmp_path / "t.csv")
    assert [str(kind) for kind in kinds_of(tmp_path)] == ["saved"]
    (tmp_path / "own.csv").write_text("run,seed,loss\nx,1,2\n")
    both = gather([f"csv:{tmp_path}", f"saved:{tmp_path}"])
    assert sorted(both.runs["run"]) == ["a", "own.csv:x"]
