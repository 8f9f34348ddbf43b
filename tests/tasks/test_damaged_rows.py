"""A task's rows are read, or refused with file and line before the first step."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rlhf_lab.experiment.data.report import inspect
from rlhf_lab.runs.trackers.console import Console
from rlhf_lab.tasks.gsm8k import Gsm8k
from rlhf_lab.tasks.hub import read_split
from rlhf_lab.tasks.pair_sources import pair_examples
from rlhf_lab.tasks.tables import RequiredFields, Table
from rlhf_lab.types.errors import UserError
from rlhf_lab.types.samples import Split
from tests.conftest import MakeConfig

DEMAND = RequiredFields(("question",))
FIELDS = {"question": "1 + 1?", "answer": "#### 2"}
GOOD = json.dumps(FIELDS).encode() + b"\n"


def read(path: Path) -> Table:
    return read_split(str(path), "train", {}, DEMAND)


LINES: dict[str, tuple[bytes, str]] = {
    "deep": (b'{"question": "a", "b": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", "is not JSON"),
    "deep and open": (b"[" * 10**5, "is not JSON"),
    "a lone surrogate": (b'{"question": "\\ud800"}', "is not JSON"),
    "a lone surrogate elsewhere": (b'{"question": "a", "\\udfff": 1}', "is not JSON"),
    "a surrogate in bytes": (b'{"question": "\xed\xa0\x80"}', "is not valid UTF-8"),
    "latin-1": (b'{"question": "\xfc"}', "is not valid UTF-8"),
    "NUL": (b"\0" * 20, "is not JSON"),
    "UTF-16": ('{"question": "a"}'.encode("utf-16"), "is not valid UTF-8"),
    "a list": (b"[1]", "is not a JSON object"),
    "two objects": (b"{} {}", "is not JSON"),
    "a number of a million digits": (
        b'{"question": 1' + b"0" * 10**6 + b"}",
        "is not JSON|no text",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_is_no_row_is_refused_with_its_number(tmp_path: Path, name: str) -> None:
    line, expected = LINES[name]
    path = tmp_path / "train.jsonl"
    path.write_bytes(GOOD + line + b"\n")
    with pytest.raises(UserError, match=rf"task.path: {path}, line 2.*({expected})") as refused:
        read(path)
    assert len(str(refused.value).splitlines()) == 1 and len(str(refused.value)) < 1000


def test_a_mark_of_utf_8_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\n\n" + GOOD)
    assert list(read(path)) == [FIELDS] * 2


def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("pipe.jsonl", "absent.jsonl", "x" * 300 + ".jsonl", "x" * 300 + ".parquet"):
        with pytest.raises(UserError, match="cannot be read"):
            read(tmp_path / name)
    with pytest.raises(UserError, match=r"train.jsonl cannot be read"):
        read(tmp_path / "folder.jsonl")


def write_table(path: Path, **columns: Any) -> Path:
    rows = {"question": ["1 + 1?"] * 300, "answer": ["#### 2"] * 300, **columns}
    pyarrow.parquet.write_table(pyarrow.table(rows), path)
    return path


def texts(*values: bytes) -> Any:
    """A column of type string with any bytes."""
    data = pyarrow.array(values, pyarrow.binary())
    return pyarrow.Array.from_buffers(pyarrow.string(), len(values), data.buffers())


COLUMNS: dict[str, tuple[dict[str, Any], str]] = {
    "a bad text": ({"question": texts(*[b"\xff"] * 300)}, "invalid UTF8"),
    "a bad text elsewhere": ({"other": texts(*[b"a"] * 299, b"\xed\xa0\x80")}, "invalid UTF8"),
    "a time that cannot be": (
        {"when": pyarrow.array([2**62] * 300, pyarrow.timestamp("us"))}, "row 1: it is no table",
    ),
    "a time of an unknown zone": (
        {"when": pyarrow.array([0] * 300, pyarrow.timestamp("s", "Nowhere/None"))}, "row 1: it is",
    ),
    "a day that cannot be": (
        {"when": pyarrow.array([2**31 - 1] * 300, pyarrow.date32())}, "row 1: it is no table",
    ),
    "numbers for text": ({"question": [1] * 300}, "row 1 has no text in field 'question'"),
    "bytes for text": ({"question": [b"a"] * 300}, "row 1 has no text in field 'question'"),
    "nothing": ({"question": [None] * 300}, "row 1 has no text in field 'question'"),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_python_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    columns, expected = COLUMNS[name]
    path = write_table(tmp_path / "train.parquet", **columns)
    with pytest.raises(UserError, match=rf"(?i)task.path: {path}.*{expected}"):
        read(path)


def test_a_parquet_file_that_is_damaged_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "train.parquet")
    data = path.read_bytes()
    for damaged in (b"", data[:-20], data[20:], bytes(len(data)), b"PAR1" * 9):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"task.path: .*it is no Parquet file.*or pass JSONL"):
            read(path)


def copied(
    make_config: MakeConfig, folder: Path, out: str, overrides: Sequence[str] = ()
) -> list[dict[str, Any]]:
    options = [
        "task=gsm8k", f"task.path={folder}", "task.validation_size=2", "data.tokens=false",
        f"data.out={out}", *overrides,
    ]  # fmt: skip
    inspect(make_config(*options), Console(quiet=True))
    lines = Path(out, "train.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_copy_has_times_as_text_and_refuses_bytes(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    questions = [f"{n} and {n * n} is what number?" for n in range(300)]
    when = [datetime(2026, 1, 2, 3, tzinfo=UTC)] * 300
    given = {"question": questions, "when": when, "cost": [Decimal("1.5")] * 300}
    write_table(tmp_path / "train.parquet", **given)
    write_table(tmp_path / "test.parquet")
    rows = copied(make_config, tmp_path, str(tmp_path / "copy"))
    assert rows[0]["when"] == "2026-01-02T03:00:00+00:00" and rows[0]["cost"] == "1.5"
    raw = tmp_path / "raw"
    raw.mkdir()
    write_table(raw / "train.parquet", **given, raw=[b"\xff"] * 300)
    write_table(raw / "test.parquet")
    with pytest.raises(UserError, match=r"row 1 cannot be written as JSON \(bytes has no form"):
        copied(make_config, raw, str(tmp_path / "other"))
    assert not (tmp_path / "other").exists() and not list(tmp_path.glob(".making*"))


def test_pairs_with_tokens_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    row = {"prompt": "a", "chosen": "b", "rejected": "c"}
    for name in ("prompt_tokens", "chosen_tokens"):
        for value in (3, "x", [], [1.5], [None], {"a": 1}):
            path.write_text(json.dumps({**row, name: value}))
            with pytest.raises(UserError, match=f"line 1 has no list of token ids in .*{name}"):
                pair_examples(path)


def test_rows_are_checked_when_a_task_is_opened(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(GOOD * 300 + b'{"question": "\\ud800"}\n')
    with pytest.raises(UserError, match=r"train.jsonl, line 301 is not JSON"):
        Gsm8k(path=str(tmp_path)).examples(Split.train)
