"""The measures of the code."""

from __future__ import annotations

from pathlib import Path

from tests.support.house import read, rows

ROOM = """\
from typing import Protocol, runtime_checkable
import os


@runtime_checkable
class Able(Protocol):
    def does(self) -> int: ...


def asks(part):
    if isinstance(part, (Able, ModelOptions)):
        return getattr(part, "size", 0)
    return os.sep
"""


def test_a_room_is_measured_by_its_files_and_functions(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "asks.py").write_text(ROOM)
    (tmp_path / "top.py").write_text("x = 1\n")
    found = {row[0]: row[1:] for row in rows(tmp_path)}
    # Functions of one and of four lines; two of 13 lines import.
    assert found["room"] == ["1", "13", "13", "2", "2.5", "15%"]
    assert found["(top)"] == ["1", "1", "1", "0", "", "0%"]
    assert found["all"] == ["2", "14", "7", "2", "2.5", "14%"]
    (file, _) = read(tmp_path)
    asked = (file.protocols, file.tests_of("Options"), file.getattr_defaults)
    assert asked == (1, 1, 1)
