"""Files that were changed are read within bounds, or refused with file, place and reason."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlhf_lab.runs.jsonl import read_rows
from rlhf_lab.runs.reading import Unreadable, checked, content, parse_json, read_json, read_yaml

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), PLAIN))
def test_what_json_writes_comes_back_with_all_its_bits(value: dict[str, Any]) -> None:
    assert repr(parse_json(json.dumps(value), dict[str, Any], "file")) == repr(value)


@pytest.mark.parametrize(
    "text",
    ["", "[1]", "null", "{", '{"a": 1} 2', '{"a": "\\ud800"}', "[" * 10**5, '{"a": ' + "1" * 5000],
    ids=range(8),
)
def test_json_that_is_no_object_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(Unreadable, match="file, line 3") as refused:
        parse_json(text, dict[str, Any], "file", "line 3")
    assert len(str(refused.value).splitlines()) == 1


def test_numbers_are_not_made_from_text() -> None:
    with pytest.raises(Unreadable, match="key seed: Input should be a valid integer, not '1'"):
        checked({"seed": "1"}, dict[str, int], "file")


def test_a_value_that_holds_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["a"] = value
    with pytest.raises(Unreadable):
        checked(value, dict[str, dict[str, dict[str, int]]], "file")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: &x [1]\nb: *x", "an alias in line 2"),
        ("a: &x [*x]", "an alias"),
        ("a: " + "[" * 100 + "]" * 100, "more than 64 levels"),
        ("a: " + "[" * 10**5, "more than 64 levels|nesting depth"),
        ("[1]", "valid dictionary"),
        ("", "valid dictionary"),
        ("a: !!python/object:os.system {}", "constructor"),
        ("a: 2026-99-99", "month"),
        ("\x00", "special characters|control characters"),
        ("? [1, 2]\n: 3", "unhashable"),
        ("1: 2", "a key that is no text: 1"),
        ("a: {b: {1: 2}}", "a key that is no text: 1"),
        ("a: 2026-01-01", "a date"),
        ("a: !!set {b}", "a set"),
        ("a: 0x" + "f" * 5000, "1024 bits"),
        ("a: {b: 1}\nc: {d: 1, e: 2,\n d: 3}", "the key d a second time, in line 3"),
    ],
    ids=range(16),
)
def test_yaml_that_is_no_config_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(Unreadable, match=reason) as refused:
        read_yaml(path)
    assert str(path) in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_files_that_are_no_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "big").write_bytes(b"12345")
    for name, reason in (
        ("pipe", "no regular file"),
        (".", "no regular file"),
        ("absent", "it is missing"),
        ("a\0b", "null (byte|character)"),
        ("big", "5 bytes, more than 4"),
        ("x" * 300, "too long"),
        ("big/below", "Not a directory"),
    ):
        with pytest.raises(Unreadable, match=reason):
            content(tmp_path / name, limit=4)


def test_a_file_of_another_type_names_the_key(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"seed": [1, null]}')
    with pytest.raises(Unreadable, match=r"file.json, key seed.1: .* not None"):
        read_json(path, dict[str, list[int]])


def test_only_a_last_line_without_its_end_may_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"st')
    rows = read_rows(path)
    assert (list(rows), rows.is_cut) == ([{"step": 0}], True)
    for text in ('{"step": 0}\n{"st\n', '{"st\n{"step": 0}\n', '[0]\n{"step": 0}\n', "3\n"):
        path.write_text(text)
        with pytest.raises(Unreadable, match=r"metrics\.jsonl, line"):
            read_rows(path)
